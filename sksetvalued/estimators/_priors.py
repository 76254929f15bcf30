"""Under which class prior a classifier that was trained gives its probabilities."""

import numpy as np
from sklearn import get_config
from sklearn.frozen import FrozenEstimator
from sklearn.naive_bayes import ComplementNB
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import MetadataRequest, get_routing_for_object

from .._predict import unwrap

#: Attributes of fitted classifiers that hold the prior which they reckon with, and what makes
#: frequencies of them.
KNOWN_PRIORS = {"class_prior_": np.asarray, "priors_": np.asarray, "class_log_prior_": np.exp}


def weights_in_training(estimator, fit_params):
    """Return the weights of samples that the classifier inside pipelines and searches is given.

    Parameters
    ----------
    estimator : classifier, not fitted
    fit_params : dict
        Arguments of its `fit`.

    Returns
    -------
    weights : array-like of shape (n_samples,) or None
    """
    step, inner = "", estimator
    while True:
        if isinstance(inner, Pipeline):
            name, inner = inner.steps[-1]
            step += f"{name}__"
        elif hasattr(type(inner), "_run_search") or isinstance(inner, FrozenEstimator):
            inner = inner.estimator
        else:
            break
    name = step + "sample_weight"
    if get_config()["enable_metadata_routing"] and inner is not estimator:
        name = _requested(inner)
    return fit_params.get(name)


def _requested(estimator):
    """Return the name of what metadata routing gives `fit` as weights, or None."""
    routing = get_routing_for_object(estimator)
    if not isinstance(routing, MetadataRequest):  # one that is made of others
        return "sample_weight" if routing.consumes("fit", ["sample_weight"]) else None
    wanted = routing.fit.requests.get("sample_weight")
    return "sample_weight" if wanted is True else wanted or None


def prior_of_scores(model, classes, class_counts):
    """Return the class prior under which a fitted classifier gives its probabilities, if known.

    Parameters
    ----------
    model : fitted classifier
    classes : ndarray of shape (n_classes,)
    class_counts : ndarray of shape (n_classes,) or None
        Training samples per class, or their weights; None: unknown.

    Returns
    -------
    prior : ndarray of shape (n_classes,) or None
        Positive: a class that was never seen counts like the rarest.

    Raises
    ------
    ValueError
        If it is another one than that of the classes as they come, and cannot be told.
    """
    inner = unwrap(model)[0]
    masses = _told_by(inner)
    if np.shape(masses) != classes.shape:
        if _resamples(model):
            raise _unknown("a step that resamples", "the counts of the classes after it")
        masses = _weighted(inner, classes, class_counts)
    if masses is None:
        return None
    masses = np.maximum(masses, masses[masses > 0].min())
    return masses / masses.sum()


def _told_by(model):
    """Return what a classifier says of the prior of its probabilities, or None."""
    if hasattr(model, "_predict_log_proba"):  # ours
        return model.class_counts_
    if isinstance(model, ComplementNB):  # which leaves its prior out
        return np.ones(len(model.classes_))
    known = (of(getattr(model, name)) for name, of in KNOWN_PRIORS.items() if hasattr(model, name))
    return next(known, None)


def _resamples(model):
    """Return whether a step changes which samples the classifier inside is trained on."""
    while model is not None:
        if isinstance(model, Pipeline):
            if any(hasattr(step, "fit_resample") for _, step in model.steps[:-1]):
                return True
            model = model.steps[-1][1]
        elif isinstance(model, FrozenEstimator):
            model = model.estimator
        else:
            model = getattr(model, "best_estimator_", None)
    return False


def _weighted(model, classes, class_counts):
    """Return the counts of the classes times the weights that the classifier gives them."""
    weight = getattr(model, "class_weight", None)
    # The probabilities of SVC are fitted without them.
    if type(model).__module__.startswith("sklearn.svm."):
        return class_counts
    given = f"class_weight of {type(model).__name__}"
    if isinstance(weight, str):  # "balanced", or the like
        if class_counts is not None and class_counts.dtype.kind == "f":
            # Some count samples for it, others their weights.
            raise _unknown(f"{given}, beside weights of samples,", "what both make of the counts")
        return np.ones(len(classes))
    if not isinstance(weight, dict):
        return class_counts
    if class_counts is None:
        raise _unknown(given, "the counts of the classes in training times these weights")
    return class_counts * [weight.get(label, 1) for label in classes.tolist()]


def _unknown(what, prior):
    return ValueError(
        f"objective='macro' divides by the class prior of the scores, which {what} changes in a "
        f"way that cannot be told here: pass prior= to the rule, {prior}."
    )
