"""Sets, set labels and scores of any fitted model, through pipelines and searches."""

from collections.abc import Iterator

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from ._checks import check_object
from ._masks import row_blocks, row_counts
from ._sets import sets_of


def unwrap(model, X=None):
    """Return the classifier inside pipelines and searches, and X as that classifier sees it.

    Parameters
    ----------
    model : fitted estimator
        A classifier, a :class:`~sklearn.pipeline.Pipeline` that ends in one, a fitted search
        (anything with ``best_estimator_``), a frozen estimator, or any nesting of these.
    X : array-like, optional

    Returns
    -------
    model : fitted estimator
    X : array-like or None
        Transformed by the steps of the pipelines on the way.
    """
    check_object("model", model)
    while True:
        if isinstance(model, Pipeline):
            check_is_fitted(model)
            X = X if X is None else _transformed(model, X)
            model = model.steps[-1][1]
        elif isinstance(model, FrozenEstimator):
            model = model.estimator
        elif _is_search(model):
            check_is_fitted(model)
            if not hasattr(model, "best_estimator_"):
                raise ValueError(
                    f"{type(model).__name__} was fitted with refit=False and holds no model. "
                    "Set refit=True, or the name of a scorer."
                )
            model = model.best_estimator_
        else:
            return model, X


def _transformed(pipeline, X):
    """Return X as the last step of a pipeline sees it.

    Steps that resample the training data, as those of imbalanced-learn do, are for `fit` only.
    """
    steps = [step for step in pipeline.steps[:-1] if not hasattr(step[1], "fit_resample")]
    if len(steps) == len(pipeline.steps) - 1:
        return pipeline[:-1].transform(X) if steps else X
    return Pipeline(steps).transform(X) if steps else X


def _is_search(model):
    return hasattr(model, "best_estimator_") or hasattr(type(model), "_run_search")


def predict_set(model, X, out=None):
    """Return the sets of a set-valued classifier, through pipelines and searches.

    Parameters
    ----------
    model : fitted estimator
        A set-valued classifier, or a pipeline or search around one.
    X : array-like of shape (n_samples, ...), or iterator of such
        What `model` accepts. Of an iterator, one batch is in memory at a time.
    out : "csr" or bool ndarray of shape (n_samples, n_classes), default=None
        Where the sets go: a sparse matrix, or an array of yours, such as a memory map.

    Returns
    -------
    y_set : bool ndarray or csr_array of shape (n_samples, n_classes), or iterator of such
        Columns in the order of the ``classes_`` of the classifier. For an iterator, the sets of
        one batch after the other, each predicted when it is asked for.

    Raises
    ------
    TypeError
        If the classifier has no sets. :class:`PlugInClassifier` gives it some.
    ValueError
        If `out` does not fit.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sksetvalued import PlugInClassifier, predict_set
    >>> from sksetvalued.rules import TopK
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = make_pipeline(StandardScaler(), PlugInClassifier(LogisticRegression(), TopK(2)))
    >>> predict_set(clf.fit(X, y), X[:2])
    array([[ True,  True, False],
           [ True,  True, False]])
    """
    if isinstance(X, Iterator):
        _set_valued(model, None, "predict_set")
        if not (out is None or isinstance(out, str)):
            raise ValueError(
                "an array in `out` is for all samples, but X is an iterator of batches: give "
                "predict_set each batch with its rows, as in out=mask[start:stop]."
            )
        return (predict_set(model, batch, out) for batch in samples_alone(model, X))
    model, X = _set_valued(model, X, "predict_set")
    return sets_of(model, X, out)


def predict_labels(model, X):
    """Return the class labels in each set, the likeliest first, through pipelines and searches.

    Parameters
    ----------
    model : fitted estimator
        A set-valued classifier, or a pipeline or search around one.
    X : array-like of shape (n_samples, ...), or iterator of such
        What `model` accepts. Of an iterator, one batch is in memory at a time.

    Returns
    -------
    labels : list of n_samples ndarrays, or iterator of such
        For an iterator, those of one batch after the other.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sksetvalued import PlugInClassifier, predict_labels
    >>> from sksetvalued.rules import TopK
    >>> data = load_iris()
    >>> clf = make_pipeline(PlugInClassifier(LogisticRegression(max_iter=1000), TopK(2)))
    >>> clf = clf.fit(data.data, data.target_names[data.target])
    >>> predict_labels(clf, data.data[:1])
    [array(['setosa', 'versicolor'], dtype='<U10')]
    """
    if isinstance(X, Iterator):
        _set_valued(model, None, "predict_labels")
        return (predict_labels(model, batch) for batch in samples_alone(model, X))
    model, X = _set_valued(model, X, "predict_labels")
    return model.predict_labels(X)


def samples_alone(model, batches):
    """Yield batches of samples; raise for pairs (X, y).

    A DataLoader makes a list of the tensors of a TensorDataset, even of a single one.
    """
    n_dims_of_one = len(getattr(unwrap(model)[0], "input_shape_", ("n_features",)))
    for batch in batches:
        parts = batch if isinstance(batch, list | tuple) else []
        n_dims = [getattr(part, "ndim", None) for part in parts]
        # Two rows in a list have one dimension both.
        if n_dims[1:] == [1] and n_dims[0] != 1:
            raise TypeError(
                "X yielded pairs, as Stream.batches and a DataLoader do: give the samples alone, "
                "as by (X for X, _ in stream.batches(1024))."
            )
        yield batch[0] if n_dims == [n_dims_of_one + 1] else batch


def _set_valued(model, X, method):
    model, X = unwrap(model, X)
    if not hasattr(model, method):
        raise TypeError(
            f"{type(model).__name__} has no {method}: it is not a set-valued classifier. Wrap it "
            "as PlugInClassifier(estimator, rule), e.g. with AverageK(3) from sksetvalued.rules."
        )
    return model, X


def set_scores(model, X):
    """Return the scores that rank the classes, and the classes, of any fitted classifier.

    Parameters
    ----------
    model : fitted estimator
        A classifier, or a pipeline or search around one. A set-valued classifier gives the
        scores that its rule ranks and thresholds, so that its objective has its effect; any
        other gives `predict_proba`, or `decision_function` where there is none.
    X : array-like of shape (n_samples, ...)

    Returns
    -------
    y_score : ndarray of shape (n_samples, n_classes)
        On whatever scale the model has: larger is likelier.
    classes : ndarray of shape (n_classes,)

    Raises
    ------
    TypeError
        If the model has neither method.
    ValueError
        If its scores do not have one column per class.
    """
    model, X = unwrap(model, X)
    if hasattr(model, "_set_scores"):
        return model._set_scores(X), np.asarray(model.classes_)
    return class_scores(model, X)


def class_scores(model, X, method=None):
    """Return `predict_proba` or else `decision_function` with one column per class, and classes.

    A one-dimensional decision function s of a binary classifier becomes the columns (-s, s).
    """
    method = score_method(model) if method is None else method
    classes = one_label_each(model)
    own = _that_decides(model)
    pairs = getattr(own, "decision_function_shape", None) == "ovo"
    if pairs and method == "decision_function" and len(classes) > 2:
        raise ValueError(
            f"{type(own).__name__} has decision_function_shape='ovo', a score for each pair of "
            f"classes: set decision_function_shape='ovr', for one of each of the {len(classes)} "
            "classes."
        )
    y_score = getattr(model, method)(X)
    if isinstance(y_score, list) or np.ndim(y_score) > 2:
        _refuse_outputs(model)
    y_score = np.asarray(y_score)
    if y_score.ndim == 1:
        y_score = np.column_stack([-y_score, y_score])
    if y_score.shape[1] != len(classes):
        raise ValueError(
            f"{method} of {type(model).__name__} has {y_score.shape[1]} columns for "
            f"{len(classes)} classes. Scores per class are needed: e.g. set "
            "decision_function_shape='ovr'."
        )
    return y_score, classes


def one_label_each(model):
    """Return the classes of a fitted classifier; raise where each sample has several labels."""
    if hasattr(model, "fit") and not hasattr(model, "classes_"):
        check_is_fitted(model)
    inner, classes = unwrap(model)[0], model.classes_
    each = getattr(inner, "multilabel_", False)  # of OneVsRestClassifier
    # MLPClassifier has a softmax for single labels, and one output for two classes.
    each |= getattr(inner, "out_activation_", None) == "logistic" and inner.n_outputs_ > 1
    if each:
        raise ValueError(
            f"{type(inner).__name__} was fitted to several labels per sample, whose columns are "
            "no classes; set-valued classification has one label per sample: fit it to these, or "
            "use SparseTopClassifier."
        )
    if isinstance(classes, list) and any(np.ndim(part) for part in classes):
        _refuse_outputs(model)
    return np.asarray(classes)


def _refuse_outputs(model):
    raise ValueError(
        f"{type(model).__name__} has several outputs; set-valued classification has one "
        "label per sample. Fit one model per output."
    )


def _that_decides(model):
    """Return the classifier inside of a model that hands the decision function on."""
    model = unwrap(model)[0]
    inner = getattr(model, "estimator_", None)
    same = inner is not None and np.array_equal(getattr(inner, "classes_", ()), model.classes_)
    return _that_decides(inner) if same else model


#: Methods that score the classes, the first that there is.
SCORE_METHODS = ("predict_proba", "decision_function")


def score_method(model):
    """Return the name of the method that scores the classes."""
    for method in SCORE_METHODS:
        if hasattr(model, method):
            return method
    raise TypeError(
        f"{type(model).__name__} has neither predict_proba nor decision_function, so classes "
        "cannot be ranked. Wrap it in sklearn.calibration.CalibratedClassifierCV, or choose a "
        "setting that gives probabilities."
    )


def labels_of_sets(y_set, y_score, classes):
    """Return the labels in each set, highest score first, ties to the highest column.

    Parameters
    ----------
    y_set : bool ndarray of shape (n_samples, n_classes)
    y_score : ndarray of shape (n_samples, n_classes)
    classes : ndarray of shape (n_classes,)

    Returns
    -------
    labels : list of n_samples ndarrays
    """
    labels = []
    for rows in row_blocks(y_set.shape):
        row, column = np.nonzero(y_set[rows])
        order = np.lexsort((column, y_score[rows][row, column], -row))[::-1]
        ends = np.cumsum(row_counts(y_set[rows]))
        ordered = classes[column[order]]
        labels += [ordered[start:end] for start, end in zip(np.append(0, ends), ends)]
    return labels
