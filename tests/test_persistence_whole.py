"""Files of save of Pipelines, PlugInClassifier and known transforms: closed lists of parts."""

import copy
import inspect
import json

import numpy as np
import pandas as pd
import pytest
import torch
from hostile_files import document_of, signed, with_document
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_blobs
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)

from sksetvalued import (
    AverageKClassifier,
    PlugInClassifier,
    TopKClassifier,
    load,
    predict_set,
    rules,
    save,
)
from sksetvalued.estimators import _steps
from sksetvalued.estimators._compose import _Reader
from sksetvalued.estimators._json import Decoder, NotEncodable, encode
from sksetvalued.estimators._steps import STEPS
from sksetvalued.estimators._transforms import NAMES, is_transform

X, Y = make_blobs(120, n_features=5, centers=6, random_state=0)
X = np.abs(X)
FRAME = pd.DataFrame(X, columns=list("abcde")).assign(sort=np.where(X[:, 0] > 4, "u", "v"))
MISSING = pd.DataFrame(
    {
        "none": ["A", "B", None, "C"] * 30,
        "nan": ["A", np.nan, "B", "C"] * 30,
        "both": ["A", None, np.nan, "C"] * 30,
    },
    dtype=object,
)
TEXTS = np.array(["one two", "two three four", "four five"] * 40)
QUICK = {"k": 2, "max_epochs": 1, "backbone": (4,), "random_state": 0}
DEEP = TopKClassifier(**QUICK)
LINEAR = LogisticRegression(max_iter=20, tol=1)
HOLDERS = {"Pipeline", "FeatureUnion", "ColumnTransformer", "FrozenEstimator"}


def saved_and_loaded(model, folder, **here):
    save(model, folder / "m")
    return load(folder / "m", **here)


def step(name):
    """Return a step by its name, alone or before the labels, and the samples that it takes."""
    model = STEPS[name].cls()
    if "Vectorizer" in name:
        return model, TEXTS
    if name == "TfidfTransformer":
        return model, np.round(X)
    if name == "OneHotEncoder":
        return model.set_params(handle_unknown="ignore"), np.round(X)
    return (model.set_params(n_quantiles=20) if name == "QuantileTransformer" else model), X


@pytest.mark.parametrize("name", sorted(STEPS.keys() - HOLDERS - {"LabelBinarizer"}))
def test_every_class_of_the_list_comes_back(tmp_path, name):
    model, samples = step(name)
    if hasattr(model, "predict"):
        whole = PlugInClassifier(model, rules.AverageK(2), cv=2).fit(samples, Y)
    else:
        last = PlugInClassifier(LINEAR, rules.TopK(2), cv=2)
        whole = make_pipeline(model, last).fit(samples, Y)
    loaded = saved_and_loaded(whole, tmp_path)
    np.testing.assert_array_equal(predict_set(loaded, samples), predict_set(whole, samples))
    assert repr(loaded) == repr(whole)
    if hasattr(model, "partial_fit"):
        steps = [getattr(m, "estimator_", None) or m[0] for m in (loaded, whole)]
        use = "transform" if hasattr(model, "transform") else "predict_proba"
        given = [getattr(s.partial_fit(samples[:40] + 1, Y[:40]), use)(samples) for s in steps]
        np.testing.assert_array_equal(*given)


@pytest.mark.parametrize(
    "rule",
    [
        rules.AverageK(1.5, objective="macro"),
        rules.AverageError(0.2, coverage="class"),
        rules.AverageError(0.1, log_scores=True),
        rules.PointwiseError(0.2),
    ],
    ids=repr,
)
def test_every_rule_comes_back(tmp_path, rule):
    model = PlugInClassifier(LINEAR, rule, cv=0.5).fit(X, Y)
    loaded = saved_and_loaded(model, tmp_path)
    assert vars(loaded.rule_).keys() == vars(model.rule_).keys()
    np.testing.assert_array_equal(loaded.predict_set(X), model.predict_set(X))
    np.testing.assert_array_equal(*(clone(m).fit(X, Y).predict_set(X) for m in (loaded, model)))


@pytest.mark.parametrize(
    "encoder",
    [
        OneHotEncoder(handle_unknown="ignore"),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False).set_output(transform="pandas"),
        OrdinalEncoder(encoded_missing_value=-1),
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=9),
    ],
    ids=lambda encoder: type(encoder).__name__,
)
def test_categories_with_missing_values_come_back(tmp_path, encoder):
    frame = MISSING.assign(numbers=np.tile([1.0, 2.0, np.nan, 3.0], 30))
    model = make_pipeline(clone(encoder), SimpleImputer(), clone(DEEP)).fit(frame, Y)
    loaded = saved_and_loaded(model, tmp_path)
    for after, before in zip(loaded[0].categories_, model[0].categories_):
        assert after.dtype == before.dtype
        assert list(map(repr, after)) == list(map(repr, before))
    new = frame[::-1].assign(none=["A", "D", None, np.nan] * 30)
    new = new if encoder.handle_unknown != "error" else frame[::-1]
    np.testing.assert_array_equal(predict_set(loaded, new), predict_set(model, new))
    codes = [m[0].transform(frame) for m in (loaded, model)]
    np.testing.assert_array_equal(*[getattr(c, "toarray", lambda c=c: c)() for c in codes])
    decoded = [m[0].inverse_transform(c) for m, c in zip((loaded, model), codes)]
    assert repr(decoded[0].tolist()) == repr(decoded[1].tolist())
    names = [m[0].get_feature_names_out().tolist() for m in (loaded, model)]
    assert names[0] == names[1]


@pytest.mark.parametrize("strategy", ["mean", "median", "most_frequent", "constant"])
@pytest.mark.parametrize("fill_value", [None, -1, np.float64(0.5)], ids=repr)
def test_imputers_come_back(tmp_path, strategy, fill_value):
    holes = np.where(np.arange(X.size).reshape(X.shape) % 7, X, np.nan)
    imputer = SimpleImputer(strategy=strategy, fill_value=fill_value)
    model = make_pipeline(imputer, clone(DEEP)).fit(holes, Y)
    loaded = saved_and_loaded(model, tmp_path)
    after, before = loaded[0].statistics_, model[0].statistics_
    assert after.dtype == before.dtype
    assert after.tolist() == before.tolist()
    np.testing.assert_array_equal(predict_set(loaded, holes), predict_set(model, holes))


def test_dicts_by_numbers_come_back(tmp_path):
    weights = {label: 1.0 + label for label in range(6)}
    linear = clone(LINEAR).set_params(class_weight=weights)
    loaded = saved_and_loaded(PlugInClassifier(linear, rules.TopK(2)).fit(X, Y), tmp_path)
    assert loaded.estimator.class_weight == weights


@pytest.fixture(scope="module")
def whole():
    """A Pipeline of many parts: columns, branches, a network and a rule around it."""
    columns = make_column_transformer(
        (make_union(StandardScaler(), PCA(2, random_state=0)), ["a", "b", "c"]),
        (OneHotEncoder(), ["sort"]),
        ("passthrough", slice(3, 5)),
        ("drop", []),
    )
    plug_in = PlugInClassifier(DEEP, rules.AverageError(0.2), cv=0.5)
    return make_pipeline(columns, plug_in).fit(FRAME, Y)


def test_the_names_of_columns_come_back(tmp_path):
    """Those of what tells none as well."""
    union = make_union(StandardScaler(), FunctionTransformer())
    columns = make_column_transformer((StandardScaler(), ["a"]), (FunctionTransformer(), ["b"]))
    for step in (union, columns):
        model = make_pipeline(step.set_output(transform="pandas"), clone(LINEAR))
        plug_in = PlugInClassifier(model, rules.TopK(2), cv="prefit")
        model.fit(FRAME[["a", "b"]], Y)
        loaded = saved_and_loaded(plug_in.fit(FRAME[["a", "b"]], Y), tmp_path)
        names = [m.estimator_[0].get_feature_names_out() for m in (loaded, plug_in)]
        np.testing.assert_array_equal(*names)


def test_a_pipeline_of_many_parts(tmp_path, whole):
    loaded = saved_and_loaded(whole, tmp_path)
    np.testing.assert_array_equal(predict_set(loaded, FRAME), predict_set(whole, FRAME))
    assert loaded.get_params().keys() == whole.get_params().keys()
    fresh = [predict_set(clone(m).fit(FRAME, Y), FRAME) for m in (loaded, whole)]
    np.testing.assert_array_equal(*fresh)


def test_the_best_pipeline_of_a_search(tmp_path):
    search = GridSearchCV(make_pipeline(StandardScaler(), DEEP), {"topkclassifier__k": [1]}, cv=2)
    search.fit(X, Y)
    with pytest.raises(TypeError, match="best_estimator_"):
        save(search, tmp_path / "m")
    loaded = saved_and_loaded(search.best_estimator_, tmp_path)
    np.testing.assert_array_equal(predict_set(loaded, X), predict_set(search, X))


def test_a_classifier_fitted_before_is_stored_once(tmp_path):
    deep = clone(DEEP).fit(X, Y)
    model = PlugInClassifier(deep, rules.AverageError(0.2), cv="prefit").fit(X, Y)
    save(deep, tmp_path / "deep")
    loaded = saved_and_loaded(model, tmp_path)
    assert loaded.estimator is loaded.estimator_
    assert (tmp_path / "m").stat().st_size < 1.5 * (tmp_path / "deep").stat().st_size
    frozen = PlugInClassifier(FrozenEstimator(deep), rules.TopK(2), cv="prefit").fit(X, Y)
    loaded = saved_and_loaded(frozen, tmp_path)
    np.testing.assert_array_equal(loaded.predict_set(X), frozen.predict_set(X))


def test_how_the_machine_runs_is_not_in_the_file(tmp_path):
    union = make_union(StandardScaler(), n_jobs=1)
    last = AverageKClassifier(**QUICK, net_params={"iterator_train__num_workers": 0})
    model = make_pipeline(union, last, memory=str(tmp_path / "cache")).fit(X, Y)
    with pytest.warns(UserWarning, match="^memory, n_jobs, net_params of the training"):
        loaded = saved_and_loaded(model, tmp_path)
    assert loaded.memory is None
    assert loaded[0].n_jobs is None
    assert model.memory is not None
    with pytest.warns(UserWarning, match="^memory, n_jobs of"):
        given = load(tmp_path / "m", net_params={"iterator_valid__num_workers": 0}, device="cpu")
    assert given[-1].device == "cpu"
    np.testing.assert_array_equal(predict_set(given, X), predict_set(model, X))


def test_nor_how_many_folds_are_fitted_at_a_time(tmp_path):
    model = PlugInClassifier(LINEAR, rules.TopK(2), cv=2, n_jobs=1)
    with pytest.warns(UserWarning, match="^n_jobs of"):
        assert saved_and_loaded(model.fit(X, Y), tmp_path).n_jobs is None

    def ask_for_more(document):
        document["model"]["plug-in"]["params"]["dict"]["n_jobs"] = 64

    (tmp_path / "m").write_bytes(with_document((tmp_path / "m").read_bytes(), ask_for_more))
    with pytest.raises(ValueError, match="no file may set n_jobs"):
        load(tmp_path / "m")


def test_another_version_of_scikit_learn(tmp_path, whole):
    save(whole, tmp_path / "m")
    content = (tmp_path / "m").read_bytes()
    document = document_of(content)
    document["versions"]["sklearn"] = "1.0"
    (tmp_path / "m").write_bytes(signed(json.dumps(document), content))
    with pytest.warns(InconsistentVersionWarning, match=r"1\.0"):
        load(tmp_path / "m")


@pytest.mark.parametrize(
    ("model", "kind", "message"),
    [
        (RandomForestClassifier(3), TypeError, "is a RandomForestClassifier.*skops"),
        (
            make_pipeline(FunctionTransformer(np.log1p), LINEAR),
            ValueError,
            "log1p.*skops",
        ),
        (
            make_pipeline(OneHotEncoder(drop="first", handle_unknown="ignore"), LINEAR),
            ValueError,
            "drop_idx_",
        ),
        (TopKClassifier(**{**QUICK, "backbone": torch.nn.Linear(5, 4)}), ValueError, "backbone"),
    ],
)
def test_what_no_file_may_hold_is_refused_by_name(tmp_path, model, kind, message):
    plug_in = PlugInClassifier(model, rules.TopK(2), cv="prefit")
    plug_in.set_params(estimator=model.fit(np.round(X), Y)).fit(np.round(X), Y)
    with pytest.raises(kind, match=message):
        save(plug_in, tmp_path / "m")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def texts():
    return make_pipeline(TfidfVectorizer(), clone(DEEP)).fit(TEXTS, Y)


class TestForgedSteps:
    """Files with their checksum that say what would reach other files, or compiled code."""

    def forged(self, model, folder, path, value):
        save(model, folder / "m")
        content = (folder / "m").read_bytes()
        document = at = document_of(content)
        for key in path[:-1]:
            at = at[key]
        assert path[-1] in at
        at[path[-1]] = value
        (folder / "m").write_bytes(signed(json.dumps(document), content))
        return load(folder / "m")

    @pytest.mark.parametrize(
        ("part", "name", "value"),
        [
            ("params", "input", "filename"),
            ("params", "token_pattern", "((a+)+)+$"),
            ("params", "token_pattern", "a*a*b"),
            ("params", "ngram_range", {"tuple": [1, 10**6]}),
            ("params", "analyzer", {"step": {"class": "os", "params": {}, "fitted": {}}}),
            ("fitted", "vocabulary_", {"dict": {"one": 10**9}}),
            ("fitted", "vocabulary_", {"dict": {"one": 0, "two": 0}}),
            ("fitted", "_tfidf", {"tensor": "0.network.head.weight"}),
        ],
    )
    def test_of_texts(self, texts, tmp_path, part, name, value):
        steps = ("model", "step", "params", "dict", "steps", "list", 0, "tuple", 1)
        path = (*steps, "step", part, "dict", name)
        with pytest.raises(ValueError, match="does not describe"):
            self.forged(texts, tmp_path, path, value)

    @pytest.mark.parametrize(
        ("name", "value"),
        [("_n_features_outs", {"list": [1] * 5}), ("categories_", {"list": []})],
    )
    def test_columns_that_do_not_follow_from_the_categories(self, tmp_path, name, value):
        encoder = OneHotEncoder(handle_unknown="ignore")
        model = make_pipeline(encoder, DEEP).fit(np.round(X), Y)
        steps = ("model", "step", "params", "dict", "steps", "list", 0, "tuple", 1)
        with pytest.raises(ValueError, match="categories are"):
            self.forged(model, tmp_path, (*steps, "step", "fitted", "dict", name), value)

    @pytest.mark.parametrize(
        "values",
        [
            [None, None],
            [{"float": "nan"}, "A"],
            ["A", {"float": "nan"}, {"float": "nan"}],
            ["A", {"float": "inf"}],
            ["A", 1],
            ["A", True],
            ["A", {"list": []}],
            [{"dict": {}}],
            ["A", "A", None],
        ],
        ids=repr,
    )
    def test_categories_that_are_no_strings_or_missing_values(self, tmp_path, values):
        model = make_pipeline(OneHotEncoder(), DEEP).fit(MISSING[["none"]], Y)
        steps = ("model", "step", "params", "dict", "steps", "list", 0, "tuple", 1, "step")
        path = (*steps, "fitted", "dict", "categories_", "list", 0, "list")
        with pytest.raises(ValueError, match="does not describe"):
            self.forged(model, tmp_path, path, values)

    @pytest.mark.parametrize("values", [[np.nan, 1.0], [1.0, np.nan, np.nan], [2.0, 1.0, np.nan]])
    def test_numbers_that_are_no_categories(self, values):
        fitted = {
            "categories_": [np.array(values)],
            "_n_features_outs": [len(values)],
            "_drop_idx_after_grouping": None,
        }
        with pytest.raises(ValueError, match="not in order"):
            _steps.built("OneHotEncoder", {}, fitted)

    def test_places_of_missing_values_that_are_those_of_others(self, tmp_path):
        encoder = OrdinalEncoder(encoded_missing_value=-1)
        model = make_pipeline(encoder, DEEP).fit(MISSING[["nan"]], Y)
        steps = ("model", "step", "params", "dict", "steps", "list", 0, "tuple", 1, "step")
        path = (*steps, "fitted", "dict", "_missing_indices")
        for pairs in ([[0, 1]], [[1, 3]], [[0, 3], [1, 3]], []):
            with pytest.raises(ValueError, match="does not describe"):
                self.forged(model, tmp_path, path, {"pairs": pairs})

    def test_parts_that_do_not_belong_together(self, tmp_path):
        model = PlugInClassifier(LINEAR, rules.AverageK(1.5)).fit(X, Y)
        rule = ("model", "plug-in", "fitted", "dict", "rule_", "rule", "document", "fitted")
        with pytest.raises(ValueError, match="its rule is of 2 classes, not of"):
            self.forged(model, tmp_path, (*rule, "n_classes_"), 2)
        step = {"class": "StandardScaler", "params": {"dict": {}}, "fitted": {"dict": {}}}
        with pytest.raises(ValueError, match="it holds a StandardScaler by itself"):
            self.forged(model, tmp_path, ("model",), {"step": step})

    def test_attributes_of_the_class(self):
        for name, fitted in (
            ("StandardScaler", {"transform": 1}),
            ("StandardScaler", {"__class__": 1}),
            ("StandardScaler", {"_sneaky": 1}),
            ("TfidfVectorizer", {"idf_": 1}),
        ):
            with pytest.raises(ValueError, match=f"no file may set .* of {name}"):
                _steps.built(name, {}, fitted)
        with pytest.raises(ValueError, match="'with_mean' parameter"):
            _steps.built("StandardScaler", {"with_mean": "yes"}, {})

    def test_a_file_does_not_multiply_columns(self):
        """By branches after each other, wherever they are hidden, or by their names."""

        def union(*parts):
            parts = parts or ("passthrough", "passthrough")
            branches = [(str(i), part) for i, part in enumerate(parts)]
            return _steps.built(
                "FeatureUnion", {"transformer_list": branches}, {"transformers_": []}
            )

        def pipeline(parts):
            return _steps.built(
                "Pipeline", {"steps": [(str(i), part) for i, part in enumerate(parts)]}, {}
            )

        half = pipeline([union() for _ in range(5)])
        frozen = _steps.built("FrozenEstimator", {"estimator": half}, {"estimator_": None})
        assert len(pipeline([union(half, frozen)]).fit_transform([[1.0]])[0]) == 64
        for parts in ([half, frozen], [half, union(frozen)], [union()] * 10):
            with pytest.raises(ValueError, match="its branches repeat columns"):
                pipeline(parts)
        params = {"transformers": [], "verbose_feature_names_out": "{feature_name:>99999999}"}
        with pytest.raises(ValueError, match="no file may set verbose_feature_names_out"):
            _steps.built("ColumnTransformer", params, {})

    def test_a_step_holds_no_other_unless_it_is_made_of_them(self):
        inner = {
            "step": {"class": "StandardScaler", "params": {"dict": {}}, "fitted": {"dict": {}}}
        }

        read = _Reader({}, {"compile": False, "device": "cpu", "net_params": {}})
        assert type(read(inner)) is StandardScaler
        outer = json.loads(json.dumps(inner))
        outer["step"]["fitted"]["dict"]["mean_"] = inner
        with pytest.raises(ValueError, match="unknown kind 'step'"):
            read(outer)


# -- transforms -----------------------------------------------------------------------------

#: All that a class takes, with no value that it has by default.
ARGUMENTS = {
    "CenterCrop": {"size": 20},
    "ColorJitter": {"brightness": 0.2, "contrast": 0.3, "saturation": 0.4, "hue": 0.1},
    "ConvertImageDtype": {"dtype": torch.float64},
    "FiveCrop": {"size": 10},
    "GaussianBlur": {"kernel_size": 3, "sigma": (0.5, 1.5)},
    "Grayscale": {"num_output_channels": 3},
    "Normalize": {"mean": (0.1, 0.2, 0.3), "std": (1, 2, 3), "inplace": True},
    "Pad": {"padding": (2, 3), "fill": 7, "padding_mode": "reflect"},
    "RandAugment": {
        "num_ops": 3,
        "magnitude": 5,
        "num_magnitude_bins": 20,
        "interpolation": "bilinear",
        "fill": [7.0] * 3,
    },
    "RandomCrop": {
        "size": 20,
        "padding": 4,
        "pad_if_needed": True,
        "fill": 7,
        "padding_mode": "edge",
    },
    "RandomErasing": {
        "p": 0.7,
        "scale": (0.1, 0.2),
        "ratio": (0.5, 2),
        "value": 7,
        "inplace": True,
    },
    "RandomGrayscale": {"p": 0.4},
    "RandomHorizontalFlip": {"p": 0.4},
    "RandomResizedCrop": {
        "size": 16,
        "scale": (0.3, 0.6),
        "ratio": (0.5, 2),
        "interpolation": "bicubic",
        "antialias": False,
    },
    "RandomRotation": {
        "degrees": 30,
        "interpolation": "bilinear",
        "center": [10, 15],
        "fill": 7,
    },
    "RandomVerticalFlip": {"p": 0.4},
    "Resize": {"size": 30, "interpolation": "bicubic", "max_size": 35, "antialias": False},
    "TenCrop": {"size": 10, "vertical_flip": True},
    "ToDtype": {"dtype": torch.float64, "scale": True},
    "TrivialAugmentWide": {
        "num_magnitude_bins": 20,
        "interpolation": "bilinear",
        "fill": [7.0] * 3,
    },
}
IMAGES = np.random.default_rng(0).integers(0, 256, (30, 12, 12, 3), dtype=np.uint8)


def there_and_back(value):
    tensors = {}
    return Decoder(tensors)(json.loads(json.dumps(encode(value, tensors, "x"))))


def arguments(transforms, name):
    """Return what a class of torchvision is given: all that it takes that a file may set."""
    taken = inspect.signature(getattr(transforms, name)).parameters
    if name == "Compose":
        bicubic = transforms.InterpolationMode.BICUBIC
        parts = [transforms.Resize([20, 30], bicubic), transforms.RandomGrayscale(0.4)]
        given = {"transforms": parts}
    else:
        given = dict(ARGUMENTS.get(name, {}))
    assert given.keys() == taken.keys() - {"expand"}
    for key, value in given.items():
        default = taken[key].default
        assert value != getattr(default, "value", default)
    if "interpolation" in given:
        given["interpolation"] = transforms.InterpolationMode(given["interpolation"])
    return given


def kept(transform):
    """Return what a transform keeps of its arguments, and those in it of theirs."""
    params = {n: getattr(transform, n) for n in inspect.signature(type(transform)).parameters}
    if "transforms" in params:
        params["transforms"] = [(type(t), kept(t)) for t in params["transforms"]]
    return params


@pytest.mark.parametrize("module", ["torchvision.transforms", "torchvision.transforms.v2"])
def test_every_transform_of_the_list_comes_back(module):
    from PIL import Image

    transforms = pytest.importorskip(module)
    image = torch.randint(0, 256, (3, 40, 50), dtype=torch.uint8)
    for name in sorted(n for n in NAMES if hasattr(transforms, n)):
        before = getattr(transforms, name)(**arguments(transforms, name))
        after = there_and_back(before)
        assert type(after) is type(before)
        assert kept(after) == kept(before)
        seen = image / 255 if name in ("Normalize", "RandomErasing") else image
        if name in ("ToTensor", "PILToTensor"):
            seen = Image.fromarray(image.permute(1, 2, 0).numpy())
        for seed in range(5):
            outcomes = []
            for transform in (before, after):
                torch.manual_seed(seed)
                outcomes.append(transform(copy.deepcopy(seen)))
            torch.testing.assert_close(*outcomes, rtol=0, atol=0)


def test_what_torchvision_gives_with_weights_comes_back():
    from torchvision.models import ResNet18_Weights

    transform = ResNet18_Weights.IMAGENET1K_V1.transforms(crop_size=20)
    image = torch.randint(0, 256, (3, 40, 50), dtype=torch.uint8)
    assert torch.equal(there_and_back(transform)(image), transform(image))


def test_paddings_of_each_side_come_back():
    from torchvision.transforms import v2

    for padding in (3, (4, 0), (1, 2, 3, 4)):
        before = v2.RandomCrop(12, padding=padding)
        assert there_and_back(before).padding == before.padding


def test_transforms_that_no_file_may_hold():
    from torchvision import transforms as v1
    from torchvision.transforms import v2

    hooked = v2.Resize(8)
    hooked.register_forward_hook(print)

    class Own(v2.Resize):
        pass

    for transform in (
        *(v1.Lambda(len), v2.Compose([len]), v2.RandomApply([v2.Resize(3)]), hooked),
        *(v2.Resize(100_000), v2.Pad(1000), v2.RandomRotation(4, expand=True)),
        v2.Compose([v2.Identity()] * 21),
        v2.RandomErasing(value="random"),  # which is kept as None
    ):
        with pytest.raises(NotEncodable):
            there_and_back(transform)
    assert not is_transform(Own(3))
    for kind, params in (
        ("v2.Lambda", {"function": "print"}),
        ("os.system", {}),
        ("v2.Resize", {"size": 8, "forward": 1}),
        ("preset.Compose", {}),
    ):
        content = {"transform": {"class": kind, "params": {"dict": params}}}
        with pytest.raises(ValueError, match="transform"):
            Decoder({})(content)


def test_a_model_with_its_transform(tmp_path):
    from torchvision.transforms import v2

    transform = {
        "train": v2.Compose([v2.RandomHorizontalFlip(), v2.Resize(8)]),
        "eval": v2.FiveCrop(8),
    }
    images = np.moveaxis(IMAGES, 3, 1)
    model = TopKClassifier(1, transform=transform, max_epochs=1, random_state=0)
    model.fit(torch.from_numpy(images), np.arange(30) % 3)
    loaded = saved_and_loaded(model, tmp_path)
    samples = torch.from_numpy(images)
    np.testing.assert_array_equal(loaded.predict_proba(samples), model.predict_proba(samples))
    assert loaded.get_params()["transform"]["train"].transforms[1].size == [8]


def test_metadata_requests_of_steps_are_told(tmp_path):
    with config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=True)
        model = make_pipeline(scaler, PlugInClassifier(GaussianNB(), rules.TopK(2), cv=2))
        model.fit(X, Y)
    with pytest.warns(UserWarning, match="^metadata requests of the training are not restored"):
        saved_and_loaded(model, tmp_path)
