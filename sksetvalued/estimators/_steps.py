"""Steps of scikit-learn that a file may hold, and what it may set of them: closed lists.

A step is its parameters and what `fit` found: numbers, strings and arrays. Classes are listed
whose predictions are arithmetic of NumPy on them, which checks its indices. Trees, neighbours and
kernel machines hand theirs to compiled code that believes them.
"""

import importlib
import math
import re
from typing import NamedTuple

import numpy as np

from ._allowed import SHORT, NotAllowed, is_bool, is_int, one_of

LARGEST_NGRAM = 30
MOST_BRANCHES = 100
#: Branches of a model after each other, multiplied: so often its columns may be repeated.
MOST_COPIES = 1000
#: Optional signs of a pattern, beside one repetition: the time of a search grows as a power of
#: the length of the text, by the number of repetitions.
MOST_OPTIONAL = 3
#: Where steps of others hold the models that they use.
PARTS_OF = {
    "ColumnTransformer": "transformers_",
    "FeatureUnion": "transformer_list",
    "Pipeline": "steps",
}
#: How the machine of the reader runs: left at the default.
MACHINE_PARAMETERS = {"memory", "n_jobs"}
#: Names of columns of pandas or polars.
NAMES_OUT = "_transformers_feature_names_out"
#: What concerns `fit` only, or this process.
PROCESS_ATTRIBUTES = {"_metadata_request", "_sklearn_version", "_stop_words_id"}


class Step(NamedTuple):
    """What a file may hold of a class: private attributes, other steps, and what is checked."""

    path: str
    private: frozenset = frozenset()
    holds_steps: bool = False
    check: object = None

    @property
    def cls(self):
        """The class, whose module is imported at need."""
        module, _, name = self.path.rpartition(".")
        return getattr(importlib.import_module(f"sklearn.{module}"), name)


# -- what must agree ------------------------------------------------------------------------


def _check_vocabulary(vectorizer):
    """Raise unless the columns of the words are those of a matrix."""
    vocabulary = getattr(vectorizer, "vocabulary_", {})
    columns = sorted(vocabulary.values()) if isinstance(vocabulary, dict) else None
    if columns != list(range(len(vocabulary))):
        raise NotAllowed("its vocabulary does not number its words")


def _check_categories(encoder):
    """Raise unless the columns of a one-hot matrix follow from the categories."""
    if not hasattr(encoder, "categories_"):
        return
    sizes = [len(categories) for categories in encoder.categories_]
    fits = all(map(_are_categories, encoder.categories_))
    fits = fits and not getattr(encoder, "_infrequent_enabled", False)
    if hasattr(encoder, "drop"):
        fits = fits and getattr(encoder, "_n_features_outs", None) == sizes
        fits = fits and encoder._drop_idx_after_grouping is None and encoder.drop is None
    else:
        ends = map(_ends_in_nan, encoder.categories_)
        places = {i: size - 1 for i, (size, nan) in enumerate(zip(sizes, ends)) if nan}
        fits = fits and getattr(encoder, "_missing_indices", None) == places
    if not fits:
        raise NotAllowed(
            "its categories are grouped, dropped, not in order, or neither numbers nor strings, "
            "which files do not hold"
        )


def _are_categories(values):
    """Return whether values are categories of a column, the missing values being of them.

    NaN is the last; None may stand among strings.
    """
    if not isinstance(values, np.ndarray) or values.ndim != 1:
        return False
    known = values[:-1] if _ends_in_nan(values) else values
    if values.dtype.kind not in "biuf":
        of_kind = all(value is None or isinstance(value, str) for value in known.tolist())
        return of_kind and len(set(known.tolist())) == len(known)
    return bool((known[1:] > known[:-1]).all() and not np.isnan(known).any())


def _ends_in_nan(values):
    return any(isinstance(value, float) and math.isnan(value) for value in values[-1:].tolist())


def _listed(values):
    """Return objects that are not all strings as a list, which files hold.

    They are strings with missing values among them, or what an imputer fills in.
    """
    mixed = values.dtype.kind == "O" and not all(isinstance(value, str) for value in values)
    return values.tolist() if mixed else values


def _unlisted(values):
    """Undo :func:`_listed`."""
    if not isinstance(values, list):
        return values
    if not all(value is None or type(value) in (bool, float, int, str) for value in values):
        raise NotAllowed("its values are neither numbers, strings nor missing")
    return np.array(values, dtype=object)


def _check_imputer(imputer):
    if getattr(imputer, "indicator_", None) is not None:
        raise NotAllowed("it adds an indicator, which files do not hold")


def _check_copies(model):
    if _n_copies(model) > MOST_COPIES:
        raise NotAllowed(f"its branches repeat columns more than {MOST_COPIES} times")


def _n_copies(model):
    """Return how often a model may repeat a column."""
    if model is None:
        return 1
    name = type(model).__name__
    parts = [_n_copies(part[1]) for part in getattr(model, PARTS_OF.get(name, ""), [])]
    if name == "Pipeline":
        return math.prod(parts)
    inner = [_n_copies(getattr(model, key, None)) for key in ("estimator", "estimator_")]
    return max(1, sum(parts), *inner)


#: Steps of which a file holds parameters and public attributes only.
SIMPLE = {
    "decomposition": ("TruncatedSVD",),
    "discriminant_analysis": ("QuadraticDiscriminantAnalysis",),
    "feature_extraction.text": ("TfidfTransformer",),
    "feature_selection": ("VarianceThreshold",),
    "linear_model": ("LogisticRegression",),
    "naive_bayes": ("BernoulliNB", "ComplementNB", "GaussianNB", "MultinomialNB"),
    "preprocessing": (
        *("Binarizer", "FunctionTransformer", "LabelBinarizer", "MaxAbsScaler", "MinMaxScaler"),
        *("Normalizer", "QuantileTransformer", "RobustScaler", "StandardScaler"),
    ),
    "svm": ("LinearSVC",),
}
#: Steps with private attributes, other steps inside or a check.
SPECIAL = [
    Step("decomposition.PCA", frozenset({"_fit_svd_solver"})),
    Step(
        "discriminant_analysis.LinearDiscriminantAnalysis",
        frozenset({"_max_components", "_n_features_out"}),
    ),
    Step("impute.SimpleImputer", frozenset({"_fill_dtype", "_fit_dtype"}), check=_check_imputer),
    Step(
        "preprocessing.OneHotEncoder",
        frozenset({"_drop_idx_after_grouping", "_infrequent_enabled", "_n_features_outs"}),
        check=_check_categories,
    ),
    Step(
        "preprocessing.OrdinalEncoder",
        frozenset({"_infrequent_enabled", "_missing_indices"}),
        check=_check_categories,
    ),
    Step("feature_extraction.text.CountVectorizer", check=_check_vocabulary),
    Step(
        "feature_extraction.text.TfidfVectorizer",
        frozenset({"_tfidf"}),
        holds_steps=True,
        check=_check_vocabulary,
    ),
    Step("preprocessing.PowerTransformer", frozenset({"_scaler"}), holds_steps=True),
    Step("linear_model.RidgeClassifier", frozenset({"_label_binarizer"}), holds_steps=True),
    Step("pipeline.Pipeline", holds_steps=True, check=_check_copies),
    Step("pipeline.FeatureUnion", frozenset({NAMES_OUT}), holds_steps=True, check=_check_copies),
    Step("frozen.FrozenEstimator", holds_steps=True),
    Step(
        "compose.ColumnTransformer",
        frozenset({"_columns", "_n_features", "_remainder", "_transformer_to_input_indices"})
        | {NAMES_OUT},
        holds_steps=True,
        check=_check_copies,
    ),
]
#: By the name of the class.
STEPS = {
    step.path.rpartition(".")[2]: step
    for step in [
        *(Step(f"{module}.{name}") for module, names in SIMPLE.items() for name in names),
        *SPECIAL,
    ]
}


# -- parameters -----------------------------------------------------------------------------


def _is_pattern(value):
    """Return whether `value` is a regular expression that cannot take for ever."""
    if not isinstance(value, str):
        return value is None
    bare = value.removeprefix("(?u)")
    few = len(re.findall(r"[*+{]", bare)) <= 1 and bare.count("?") <= MOST_OPTIONAL
    return len(bare) < 200 and "(" not in bare and few


def _is_range(value):
    return (
        isinstance(value, tuple | list)
        and len(value) == 2
        and all(type(n) is int and 1 <= n <= LARGEST_NGRAM for n in value)
    )


def _are_branches(value):
    return isinstance(value, list) and len(value) <= MOST_BRANCHES


#: By the name of the parameter, whatever the class.
PARAMS = {
    **dict.fromkeys(("steps", "transformer_list", "transformers", "transformers_"), _are_branches),
    **dict.fromkeys(MACHINE_PARAMETERS, one_of(None)),
    "input": one_of("content"),
    "kw_args": one_of(None),
    "inv_kw_args": one_of(None),
    "ngram_range": _is_range,
    "random_state": lambda value: value is None or type(value) is int,
    "token_pattern": _is_pattern,
    "verbose": lambda value: is_bool(value) or is_int(value),
    "verbose_feature_names_out": is_bool,
}


def _is_output(value):
    known = isinstance(value, dict) and value.keys() == {"transform"}
    return known and value["transform"] in (None, "default", "pandas", "polars")


def state_of(step):
    """Return the parameters and the attributes of a step, and the names of what is left out.

    Parameters
    ----------
    step : estimator
        Of a class in :data:`STEPS`.
    """
    params = step.get_params(deep=False)
    left_out = {k for k in MACHINE_PARAMETERS & params.keys() if params[k] is not None}
    unfitted = params.keys() | PROCESS_ATTRIBUTES
    # Numbers of NumPy have a shape, which scikit-learn asks for.
    fitted = {
        name: np.asarray(value) if isinstance(value, np.number) else value
        for name, value in vars(step).items()
        if name not in unfitted
    }
    if isinstance(fitted.get(NAMES_OUT), list):
        fitted[NAMES_OUT] = [np.asarray(names, dtype=object) for names in fitted[NAMES_OUT]]
    if "categories_" in fitted:
        fitted["categories_"] = [_listed(categories) for categories in fitted["categories_"]]
    if "statistics_" in fitted:
        fitted["statistics_"] = _listed(fitted["statistics_"])
    if "_metadata_request" in vars(step):
        left_out.add("metadata requests")
    return params | dict.fromkeys(left_out & params.keys()), fitted, left_out


def built(name, params, fitted):
    """Return the step that parameters and attributes describe.

    Raises
    ------
    NotAllowed, ValueError, TypeError
        What a file may not set.
    """
    step = STEPS[name]
    cls = step.cls
    names = set(cls._get_param_names())
    if not params.keys() <= names:
        raise NotAllowed(f"{name} has no parameters {sorted(params.keys() - names)[:5]}")
    for key, value in (params | fitted).items():
        if key in PARAMS and not PARAMS[key](value):
            raise NotAllowed(f"no file may set {key} of {name} to {SHORT.repr(value)}")
    for key, value in fitted.items():
        if not (_is_output(value) if key == "_sklearn_output_config" else _is_fitted(key, step)):
            raise NotAllowed(f"no file may set {key!r:.50} of {name}")
    if isinstance(fitted.get("categories_"), list):
        fitted = fitted | {"categories_": [_unlisted(c) for c in fitted["categories_"]]}
    if "statistics_" in fitted:
        fitted = fitted | {"statistics_": _unlisted(fitted["statistics_"])}
    model = cls(**params)
    for name, value in fitted.items():  # arrays without a dimension were numbers of NumPy
        is_number = isinstance(value, np.ndarray) and not value.ndim
        vars(model)[name] = value[()] if is_number else value
    if hasattr(model, "_parameter_constraints"):
        model._validate_params()
    if step.check is not None:
        step.check(model)
    return model


def _is_fitted(name, step):
    """Return whether an attribute is one that `fit` sets, and hides none of the class."""
    public = name.endswith("_") and not name.startswith("_") and not hasattr(step.cls, name)
    return name in step.private or public
