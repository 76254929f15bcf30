"""Calibration, and sets out of fold, of any set-valued model, through pipelines and searches."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from sklearn import get_config
from sklearn.base import clone
from sklearn.model_selection import check_cv
from sklearn.utils import indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params

from ._arrays import as_array, as_labels, positions
from ._checks import check_integer
from ._predict import predict_set, samples_alone, unwrap
from .estimators._plug_in import PlugInClassifier
from .estimators._targets import encode_label_sets, has_several_labels
from .training import with_rows


def calibrate(model, X, y=None, sample_weight=None, n_samples=None):
    """Calibrate the rule of a set-valued classifier anew, through pipelines and searches.

    The classifier stays as it is. Use samples that it was not trained on, like those that sets
    are wanted for, or those very samples.

    Parameters
    ----------
    model : fitted estimator
        A set-valued classifier with a threshold, or a pipeline or search around one.
    X : array-like of shape (n_samples, ...), or iterator of such
        What `model` accepts. Of an iterator, one batch is in memory at a time.
    y : array-like of shape (n_samples,), optional
        Labels of all samples, for the rules that need them.
    sample_weight : array-like of shape (n_samples,), optional
        Weights of all samples.
    n_samples : int, optional
        Number of samples of all batches of an iterator. With it the threshold of `AverageK` is
        exact whatever their order; without it, of batches that are shuffled.

    Returns
    -------
    model : fitted estimator
        The one given. A model in a `FrozenEstimator` is shared by all clones, and is calibrated
        for all of them.

    Raises
    ------
    TypeError
        If the classifier has nothing to calibrate.
    ValueError
        If there are no batches, or their samples are not as many as announced.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sksetvalued import PlugInClassifier, calibrate, predict_set
    >>> from sksetvalued.rules import AverageK
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = make_pipeline(StandardScaler(), PlugInClassifier(LogisticRegression(), AverageK(2)))
    >>> clf = clf.fit(X[::2], y[::2])
    >>> int(predict_set(calibrate(clf, X[1::2]), X[1::2]).sum())  # 75 samples
    150
    """
    inner = _calibrated(model)
    if isinstance(X, Iterator):
        batches = _batches(model, X, y, sample_weight, n_samples)
        return _take_rule(model, inner._calibrated_part(batches, n_samples))
    if n_samples is not None:
        raise ValueError("n_samples is for an iterator of batches: leave it out with an array.")
    inner, X = unwrap(model, X)
    inner.calibrate(X, y, sample_weight=sample_weight)
    return model


def calibrate_part(model, X, y=None, sample_weight=None, n_samples=None):
    """Calibrate a rule for a model on a part of the samples, to be merged with those of others.

    Several processes can so calibrate one model: each loads it and sees its part, and
    :func:`merge_parts` gives the model the threshold of all samples.

    Parameters
    ----------
    model : fitted estimator
        A set-valued classifier with a threshold, or a pipeline or search around one. It is left
        as it is.
    X : array-like of shape (n_samples, ...), or iterator of such
        The samples of this part.
    y, sample_weight : array-like of shape (n_samples,), optional
        Labels and weights of this part.
    n_samples : int, optional
        Number of samples of all parts together. With it the threshold of `AverageK` is exact
        whatever their order; without it, of samples that are shuffled among the parts.

    Returns
    -------
    part : rule
        It pickles, and holds the scores that may still matter.

    Raises
    ------
    TypeError
        If the classifier has nothing to calibrate.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sksetvalued import PlugInClassifier, calibrate, calibrate_part, merge_parts
    >>> from sksetvalued.rules import AverageK
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = PlugInClassifier(GaussianNB(), AverageK(1.2)).fit(X[::2], y[::2])
    >>> parts = [calibrate_part(clf, X[i::2], n_samples=150) for i in range(2)]
    >>> threshold = merge_parts(clf, parts).rule_.threshold_
    >>> bool(calibrate(clf, X).rule_.threshold_ == threshold)
    True
    """
    batches = X if isinstance(X, Iterator) else iter([X])
    batches = _batches(model, batches, y, sample_weight)
    return _calibrated(model)._calibrated_part(batches, n_samples)


def merge_parts(model, parts):
    """Give a model the threshold of all samples that parts of them were calibrated on.

    Parameters
    ----------
    model : fitted estimator
        The one whose parts they are.
    parts : iterable of rules
        What :func:`calibrate_part` returned. They are used up: those of a list all or none, those
        of an iterator one at a time, so that no more than two are in memory.

    Returns
    -------
    model : fitted estimator
        The one given.

    Raises
    ------
    ValueError
        If there are no parts, they are of a model of other classes, prior or rule, or do not fit
        together. Of parts of an older model that has the same, nothing can be told.

    Examples
    --------
    See :func:`calibrate_part`.
    """
    inner = _calibrated(model)
    if not isinstance(parts, Iterable):
        raise TypeError(
            f"parts must be an iterable of what calibrate_part returned, got one "
            f"{type(parts).__name__}: put it into a list."
        )
    listed, parts = isinstance(parts, list | tuple), iter(parts)
    rule = next(parts, None)
    if rule is None:
        raise ValueError("parts holds no part: give what calibrate_part returned.")
    inner._rule()._begin(len(inner.classes_))._check_alike(rule)
    for others in [parts] if listed else zip(parts):
        rule.merge(*others)
    if rule._closed:  # the only part has all samples that it was announced
        return _take_rule(model, rule)
    n_given = rule.n_samples_seen_ + rule._n_left_out
    if rule._announced not in (None, n_given):
        raise ValueError(
            f"parts hold {n_given} samples, where n_samples={rule._announced} was "
            "said to calibrate_part: give all parts, and say n_samples of all of them together. "
            "The first part has taken in the others: give it and those that are missing."
        )
    return _take_rule(model, rule)


def _calibrated(model):
    """Return the classifier inside a model, which must have something to calibrate."""
    inner, _ = unwrap(model)
    if not hasattr(inner, "calibrate"):
        raise TypeError(
            f"{type(inner).__name__} has nothing to calibrate: its sets do not depend on a "
            "threshold. AverageKClassifier has one, and PlugInClassifier with the rules."
        )
    return inner


def _take_rule(model, rule):
    rule._finish()
    unwrap(model)[0].rule_ = rule
    return model


def _batches(model, X, y, sample_weight, n_samples=None):
    """Yield (X, y, sample_weight) of each batch, X as the classifier inside the model sees it."""
    if y is not None:
        # Other classifiers need none, whatever they are.
        has_rule = isinstance(unwrap(model)[0], PlugInClassifier)
        y = as_labels(y, "y", warn=True) if has_rule else as_array(y, "y")
    sample_weight = None if sample_weight is None else as_array(sample_weight, "sample_weight")
    if n_samples is not None:
        check_integer("n_samples", n_samples, 0, also=" or None")
    start = 0
    for batch in samples_alone(model, X):
        _, batch = unwrap(model, batch)
        stop = start + _n_samples(batch)
        if n_samples is not None and stop > n_samples:
            raise ValueError(
                f"X yielded {stop} samples or more, but n_samples={n_samples}: it is the number "
                "of samples of all batches together."
            )
        for name, values in {"y": y, "sample_weight": sample_weight}.items():
            if values is not None and len(values) < stop:
                raise ValueError(
                    f"X yielded {stop} samples or more, but {name} is for {len(values)}."
                )
        rows = slice(start, stop)
        yield batch, *(None if a is None else a[rows] for a in (y, sample_weight))
        start = stop
    if not start:
        raise ValueError("X yielded no batches: give an iterator that was not used up.")
    total = {"n_samples": n_samples, "y": y, "sample_weight": sample_weight}
    for name, value in total.items():
        size = value if value is None or name == "n_samples" else len(value)
        if size is not None and size != start:
            raise ValueError(f"X yielded {start} samples, but {name} is for {size}.")


def _n_samples(batch):
    """Return the number of samples of a batch, or of each part of it."""
    if hasattr(batch, "shape"):  # first, as a "dok" matrix is a mapping too
        return batch.shape[0]
    return len(next(iter(batch.values()), ()) if isinstance(batch, Mapping) else batch)


def cross_val_predict_set(model, X, y, *, groups=None, cv=None, n_jobs=None, params=None):
    """Return the set of each sample by a model that was not trained on it.

    Parameters
    ----------
    model : estimator
        A set-valued classifier, or a pipeline or search around one; it is cloned for each fold,
        fitted and calibrated on the other samples.
    X : array-like of shape (n_samples, ...)
        What `model` accepts.
    y : array-like of shape (n_samples,)
        Labels; several per sample where `model` learns them, in a form that it takes.
    groups : array-like of shape (n_samples,), optional
        Groups of the samples, for splitters such as `GroupKFold`. Where metadata routing is
        enabled they belong to `params`.
    cv : int, splitter, iterable or None, default=None
        An int or None (5): folds, stratified by single labels. Their test parts must hold each
        sample once.
    n_jobs : int, optional
        Folds fitted at a time.
    params : dict, optional
        Passed to ``model.fit``, such as ``{"sample_weight": weights}``: of arrays as long as X,
        the rows of the fold. By metadata routing where it is enabled: to ``model.fit`` and
        ``cv.split``, as these request them.

    Returns
    -------
    y_set : bool ndarray of shape (n_samples, n_classes)
        Columns in the order of the sorted labels in `y`, or of its own columns. A class that the
        training part of a fold lacks is in none of its sets.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sksetvalued import PlugInClassifier, cross_val_predict_set
    >>> from sksetvalued.metrics import coverage_interval
    >>> from sksetvalued.rules import AverageK
    >>> X, y = load_iris(return_X_y=True)
    >>> y_set = cross_val_predict_set(PlugInClassifier(GaussianNB(), AverageK(1.1)), X, y)
    >>> [round(bound, 2) for bound in coverage_interval(y, y_set)]
    [0.94, 0.99]
    """
    if not isinstance(params, Mapping | None):
        raise TypeError(f"params must be a dict of arguments of fit, or None, got {params!r}.")
    several = has_several_labels(y)
    if several:
        _, classes, form = encode_label_sets(y)
        # Lists of one length, which a fold may hold alone, would be rows of an indicator.
        y = [set(labels) for labels in y] if form == "sets" else y
        X, y = indexable(with_rows(X), y)
    else:
        X, y = indexable(with_rows(X), as_labels(y, "y", warn=True))
        classes = np.unique(y)
    n_samples = _n_samples(y)
    cv = check_cv(cv, y, classifier=not several)
    fit_params, split_params = _route(model, cv, groups, params or {})
    folds = list(cv.split(X, y, **split_params))
    tested = np.concatenate([np.arange(n_samples)[test] for _, test in folds])
    if not np.array_equal(np.sort(tested), np.arange(n_samples)):
        raise ValueError(
            "cv must test each sample exactly once, as KFold does; for repeated or partial splits "
            "use cross_validate with the scorers of sksetvalued.metrics."
        )
    parts = Parallel(n_jobs=n_jobs)(
        delayed(_sets_of_fold)(clone(model), X, y, train, test, classes, fit_params)
        for train, test in folds
    )
    y_set = np.zeros((n_samples, len(classes)), dtype=bool)
    y_set[tested] = np.concatenate(parts)
    return y_set


def _route(model, cv, groups, params):
    """Return the parameters of `fit` of the model and of `split` of the splitter."""
    if not get_config()["enable_metadata_routing"]:
        return params, {"groups": groups}
    if groups is not None:
        raise ValueError(
            "groups are metadata like others where metadata routing is enabled: pass them as "
            "params={'groups': groups}."
        )
    router = MetadataRouter(owner="cross_val_predict_set")
    router.add(estimator=model, method_mapping=MethodMapping().add(caller="fit", callee="fit"))
    router.add(splitter=cv, method_mapping=MethodMapping().add(caller="fit", callee="split"))
    routed = process_routing(router, "fit", **params)
    return routed["estimator"]["fit"], routed["splitter"]["split"]


def _sets_of_fold(model, X, y, train, test, classes, params):
    params = _check_method_params(X, params, indices=train)
    model.fit(*_safe_split(model, X, y, train), **params)
    known = np.asarray(unwrap(model)[0].classes_)
    sets = predict_set(model, _safe_split(model, X, y, test, train)[0])
    y_set = np.zeros((len(sets), len(classes)), dtype=bool)
    # A model that was fitted before may know others.
    column = positions(known, classes)
    y_set[:, column[column >= 0]] = sets[:, column >= 0]
    return y_set
