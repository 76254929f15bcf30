"""Scorers: callables (estimator, X, y) for ``scoring=``, for any classifier."""

from numbers import Real

from sklearn import get_config
from sklearn.utils.metadata_routing import MetadataRequest

from .._checks import check_option
from .._predict import predict_set, set_scores, unwrap
from .._validation import check_average_k, check_top_k
from ._inputs import scores_of_predict
from ._metrics import (
    AVERAGES,
    average_k_accuracy_score,
    average_set_size,
    set_coverage_score,
    top_k_accuracy_score,
)


class SetScorer:
    """Score a fitted classifier on labelled data.

    Holds only its parameters, so that it pickles and copies. Subclasses check these, implement
    ``_score`` and carry the name of the function that makes them.
    """

    _name = None

    def __init__(self, **params):
        self._params = params

    def __setstate__(self, state):
        """Take the state that a file holds, which may be forged."""
        parts = dict(state) if isinstance(state, dict) else {}
        params, request = parts.pop("_params", None), parts.pop("_sample_weight_request", None)
        known = isinstance(params, dict) and isinstance(request, str | bool | None)
        # Of a forged object not even the name can be told.
        if parts or not known or not all(isinstance(v, str | Real) for v in params.values()):
            raise ValueError(f"the state of a {self._name} is malformed.")
        try:
            self.__init__(**params)
        except TypeError as error:
            raise ValueError(f"the state of a {self._name} is malformed: {error}") from error
        if "_sample_weight_request" in state:
            self._sample_weight_request = request

    @property
    def __name__(self):
        # By which reports of other libraries call a scorer.
        return self._name

    def __call__(self, estimator, X, y=None, sample_weight=None):
        """Return the score of `estimator` on X and y.

        Parameters
        ----------
        estimator : fitted classifier
            Any classifier, or a pipeline or search around one.
        X : array-like of shape (n_samples, ...)
        y : array-like of shape (n_samples,)
            True labels. Labels that the classifier does not know count as misses.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        score : float
        """
        return self._score(estimator, X, y, sample_weight, **self._params)

    def __repr__(self):
        params = ", ".join(f"{name}={value!r}" for name, value in self._params.items())
        return f"{self._name}({params})"

    def __eq__(self, other):
        return type(self) is type(other) and self._params == other._params

    def __hash__(self):
        return hash((type(self), tuple(self._params.items())))

    def set_score_request(self, *, sample_weight):
        """Say whether metadata routing is to pass `sample_weight` to this scorer.

        Parameters
        ----------
        sample_weight : bool, None or str
            As in scikit-learn's metadata routing.

        Returns
        -------
        self : SetScorer
        """
        if not get_config()["enable_metadata_routing"]:
            raise RuntimeError(
                "set_score_request needs metadata routing: switch it on with "
                "sklearn.set_config(enable_metadata_routing=True)."
            )
        self._sample_weight_request = sample_weight
        return self

    def get_metadata_routing(self):
        """Return the metadata that this scorer requests.

        Returns
        -------
        routing : MetadataRequest
        """
        request = MetadataRequest(owner=self)
        alias = getattr(self, "_sample_weight_request", None)
        request.score.add_request(param="sample_weight", alias=alias)
        return request

    def _accept_sample_weight(self):
        # Asked by scikit-learn's multimetric scorer when routing is off.
        return True


class _TopKScorer(SetScorer):
    _name = "top_k_scorer"

    def __init__(self, k, average):
        check_top_k(k)
        super().__init__(k=k, average=_check_average(average))

    def _score(self, estimator, X, y, sample_weight, k, average):
        model, X = unwrap(estimator, X)
        y_score, classes = set_scores(model, X)
        y_score = scores_of_predict(model, y_score)
        return top_k_accuracy_score(
            y, y_score, k=k, average=average, labels=classes, sample_weight=sample_weight
        )


class _AverageKScorer(SetScorer):
    _name = "average_k_scorer"

    def __init__(self, k, average):
        check_average_k(k)
        super().__init__(k=k, average=_check_average(average))

    def _score(self, estimator, X, y, sample_weight, k, average):
        y_score, classes = set_scores(estimator, X)
        return average_k_accuracy_score(
            y, y_score, k=k, average=average, labels=classes, sample_weight=sample_weight
        )


class _SetCoverageScorer(SetScorer):
    _name = "set_coverage_scorer"

    def __init__(self, average):
        super().__init__(average=_check_average(average))

    def _score(self, estimator, X, y, sample_weight, average):
        model, X = unwrap(estimator, X)
        y_set = predict_set(model, X, out="csr")
        return set_coverage_score(
            y, y_set, average=average, labels=model.classes_, sample_weight=sample_weight
        )


class _SetSizeScorer(SetScorer):
    _name = "set_size_scorer"

    def __init__(self):
        super().__init__()

    def _score(self, estimator, X, y, sample_weight):
        return average_set_size(predict_set(estimator, X, out="csr"), sample_weight=sample_weight)


#: The classes of scorers, which files of searches name.
SCORERS = (_TopKScorer, _AverageKScorer, _SetCoverageScorer, _SetSizeScorer)


def top_k_scorer(k=5, average="micro"):
    """Make a scorer of the top-k accuracy.

    Parameters
    ----------
    k : int, default=5
    average : {"micro", "macro"}, default="micro"

    Returns
    -------
    scorer : callable (estimator, X, y, sample_weight=None) -> float
        Works on any classifier, through pipelines and searches, and when `y` holds labels that
        the classifier was not trained on: those are misses.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sksetvalued.metrics import top_k_scorer
    >>> X, y = load_iris(return_X_y=True)
    >>> cross_val_score(GaussianNB(), X, y, scoring=top_k_scorer(k=2))
    array([1., 1., 1., 1., 1.])
    """
    return _TopKScorer(k, average)


def average_k_scorer(k=5, average="micro"):
    """Make a scorer of the average-k accuracy.

    The threshold is found on the scored data itself, without its labels, so that models are
    compared at the same average set size, whatever the threshold they were calibrated to.

    Parameters
    ----------
    k : float, default=5
    average : {"micro", "macro"}, default="micro"

    Returns
    -------
    scorer : callable (estimator, X, y, sample_weight=None) -> float
        See `top_k_scorer`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sksetvalued.metrics import average_k_scorer
    >>> X, y = load_iris(return_X_y=True)
    >>> cross_val_score(GaussianNB(), X, y, scoring=average_k_scorer(k=1.5))
    array([1., 1., 1., 1., 1.])
    """
    return _AverageKScorer(k, average)


def set_coverage_scorer(average="micro"):
    """Make a scorer of the coverage of the sets that the classifier predicts.

    Coverage grows with the size of the sets: compare it at equal size, or put `set_size_scorer`
    beside it.

    Parameters
    ----------
    average : {"micro", "macro"}, default="micro"

    Returns
    -------
    scorer : callable (estimator, X, y, sample_weight=None) -> float
        The estimator must be set-valued, or a pipeline or search around such a one.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sksetvalued import PlugInClassifier
    >>> from sksetvalued.metrics import set_coverage_scorer
    >>> from sksetvalued.rules import TopK
    >>> X, y = load_iris(return_X_y=True)
    >>> set_coverage_scorer()(PlugInClassifier(GaussianNB(), TopK(2)).fit(X, y), X, y)
    1.0
    """
    return _SetCoverageScorer(average)


def set_size_scorer():
    """Make a scorer of the average size of the sets that the classifier predicts.

    It is there to be read beside a coverage, in `cross_validate` or in a search with
    ``refit="coverage"``: the greatest size is not the best.

    Returns
    -------
    scorer : callable (estimator, X, y=None, sample_weight=None) -> float

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sksetvalued import PlugInClassifier
    >>> from sksetvalued.metrics import set_size_scorer
    >>> from sksetvalued.rules import TopK
    >>> X, y = load_iris(return_X_y=True)
    >>> set_size_scorer()(PlugInClassifier(GaussianNB(), TopK(2)).fit(X, y), X)
    2.0
    """
    return _SetSizeScorer()


def _check_average(average):
    check_option("average", average, AVERAGES[:2], " in a scorer, which returns one number")
    return average
