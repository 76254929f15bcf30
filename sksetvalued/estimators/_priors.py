"""Under which class prior a classifier that was trained gives its probabilities."""

import numpy as np
from sklearn import get_config
from sklearn.frozen import FrozenEstimator
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
        If the classes were given weights, and their counts are unknown.
    """
    model = unwrap(model)[0]
    masses = next(
        (of(getattr(model, name)) for name, of in KNOWN_PRIORS.items() if hasattr(model, name)),
        None,
    )
    if np.shape(masses) != classes.shape:
        masses = _weighted(model, classes, class_counts)
    if masses is None:
        return None
    masses = np.maximum(masses, masses[masses > 0].min())
    return masses / masses.sum()


def _weighted(model, classes, class_counts):
    """Return the counts of the classes times the weights that the classifier gives them."""
    weight = getattr(model, "class_weight", None)
    # Our own take them back, and the probabilities of SVC are fitted without them.
    takes_back = hasattr(model, "_predict_log_proba")
    if takes_back or type(model).__module__.startswith("sklearn.svm."):
        weight = None
    if isinstance(weight, str):  # "balanced", or the like
        return np.ones(len(classes))
    if not isinstance(weight, dict):
        return class_counts
    if class_counts is None:
        raise ValueError(
            f"objective='macro' divides by the class prior of the scores, which class_weight of "
            f"{type(model).__name__} changes, and how many samples of each class it was trained "
            "on is unknown: pass prior= to the rule, these counts times the weights."
        )
    return class_counts * [weight.get(label, 1) for label in classes.tolist()]
