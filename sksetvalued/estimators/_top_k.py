"""Sets of exactly k classes."""

from numbers import Integral, Real

import torch
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from ..metrics import top_k_accuracy_score
from ..operators import top_k_marginals
from ..rules import TopK
from ._docs import with_training_parameters
from ._labels import MIXTURE_CONSTRAINTS, DeepSetClassifier
from ._plain_state import PlainState


@with_training_parameters
class TopKClassifier(PlainState, DeepSetClassifier, rule=TopK):
    """Deep classifier that returns the k likeliest classes of every sample.

    The network is trained with a top-k loss. The default mixes the cross-entropy with the noised
    top-k hinge [1]_, which asks the true class to be among the k largest scores by a margin, at
    the ranks 1 and k. With `max_margin` the margin grows for rare classes and the scores are
    cosines times `scale`.

    Parameters that belong to losses are None by default, "as the loss has it"; one that is set and
    that the chosen loss does not have is warned of.

    Parameters
    ----------
    k : int, default=5
        Size of the sets. With k >= n_classes every class is returned, with a warning.
    objective : {"micro", "macro"}, default="micro"
        What the sets are to maximise: coverage over samples, or averaged over classes (for long
        tails). "macro" ranks by p_y(x) / prior_y.
    loss : str, criterion class or instance, default="noised_mixture"
        "noised_mixture", "noised_hinge" (that of [1]_), "smoothed_hinge", "calibrated_hinge",
        "hinge", "convex_hinge", "cross_entropy", "focal", "ldam", "logit_adjusted", any other
        name in ``sksetvalued.losses.LOSSES`` for single labels, or a torch criterion.
    epsilon : float, default=None
        Standard deviation of the noise of the noised hinge. None: 1, and 0.1 with `max_margin`,
        where it counts in units of cosines.
    n_noise_samples : int, default=None
        Draws of noise of the noised hinge. None: 5.
    cross_entropy : float in [0, 1], default=None
        Share of the cross-entropy in a mixture. None: 0.5.
    ranks : mapping or iterable of (rank, weight), default=None
        Ranks of the hinge, and their weights in it, such as ``{1: 0.5, "k": 0.5}``, which None
        means in a mixture.
    label_smoothing : float in [0, 1), default=None
        Share of the labels of a mixture that goes to the classes in proportion to their training
        counts. None: 0.
    max_margin : float, default=None
        Margin of the rarest class; the others have ``max_margin * (n_min / n_y) ** (1/4)``.
        None: every class has the margin 1; with "ldam", 0.5 for the rarest.
    scale : float, default=None
        Factor of the scores, which are cosines where there are class margins. None: 50 with these
        and 30 for "ldam", else 1.
    loss_params : dict, default=None
        Further arguments of the loss, such as ``{"tau": 0.1}`` of "smoothed_hinge".
    rule_params : dict, default=None
        Further arguments of :class:`sksetvalued.rules.TopK`.
    class_weight : dict, "balanced" or None, default=None
        Weights of the samples of each class in the loss, ``{label: weight}``, one for those not
        named; "balanced": inversely proportional to the class counts. Sets are not biased by it:
        the rules take it back, and `objective` says what they maximise.
    {training}

    Attributes
    ----------
    {fitted}
    rule_ : TopK
        The fitted rule.

    See Also
    --------
    AverageKClassifier : Sets of k classes on average.
    PlugInClassifier : Sets from any scikit-learn classifier.

    References
    ----------
    .. [1] Garcin, Servajean, Joly & Salmon, "Stochastic smoothing of the top-K calibrated hinge
       loss for deep imbalanced classification", ICML 2022, eq. (10) and (13).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sksetvalued import TopKClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = TopKClassifier(k=2, max_epochs=10, random_state=0).fit(X[:1000], y[:1000])
    >>> clf.predict_set(X[1000:1002]).shape
    (2, 10)
    >>> [len(labels) for labels in clf.predict_labels(X[1000:1002])]
    [2, 2]
    """

    _parameter_constraints = {
        **DeepSetClassifier._parameter_constraints,
        "k": [Interval(Integral, 1, None, closed="left")],
        "epsilon": [Interval(Real, 0, None, closed="left"), None],
        "n_noise_samples": [Interval(Integral, 1, None, closed="left"), None],
        **MIXTURE_CONSTRAINTS,
        "max_margin": [Interval(Real, 0, None, closed="left"), None],
        "scale": [Interval(Real, 0, None, closed="neither"), None],
    }

    def __init__(
        self,
        k=5,
        *,
        objective="micro",
        loss="noised_mixture",
        epsilon=None,
        n_noise_samples=None,
        cross_entropy=None,
        ranks=None,
        label_smoothing=None,
        max_margin=None,
        scale=None,
        loss_params=None,
        rule_params=None,
        class_weight=None,
        **training,
    ):
        super().__init__(**training)
        self.k = k
        self.objective = objective
        self.loss = loss
        self.epsilon = epsilon
        self.n_noise_samples = n_noise_samples
        self.cross_entropy = cross_entropy
        self.ranks = ranks
        self.label_smoothing = label_smoothing
        self.max_margin = max_margin
        self.scale = scale
        self.loss_params = loss_params
        self.rule_params = rule_params
        self.class_weight = class_weight

    _loss_parameters = (
        "epsilon",
        "n_noise_samples",
        "cross_entropy",
        "ranks",
        "label_smoothing",
        "max_margin",
        "scale",
    )

    def _rule(self):
        return self._build_rule(TopK, k=self.k, objective=self.objective)

    def _rule_scores(self, scores):
        """Return the log-probabilities up to a constant of each sample, which changes no set."""
        shift = self._log_shift
        if self._label_smoothing:
            return self._log_proba(scores)
        return scores + shift if shift.any() else scores

    def _refresh_rule(self):
        check_is_fitted(self)
        # 2.0 equals 2, but is no rank.
        if type(self.k) is not type(self.rule_.k) or self._rule_changes():
            self._new_rule()

    def _monitor_metric(self):
        macro = self.objective == "macro" or self.max_margin is not None
        average = "macro" if macro else "micro"
        k, labels = min(self.k, len(self.classes_)), range(len(self.classes_))

        def metric(y_true, y_score, sample_weight):
            if self.objective == "macro":
                y_score = self._rank_scores(y_score)
            return top_k_accuracy_score(
                y_true, y_score, k=k, average=average, labels=labels, sample_weight=sample_weight
            )

        return f"valid_{'macro_' if macro else ''}top_k_accuracy", metric

    def _iter_rule_scores(self, X, of_scores):
        if self.rule_.objective == "macro":
            yield from super()._iter_rule_scores(X, of_scores)
            return
        for scores in self._iter_scores(X, apart=True):
            yield of_scores(scores) if scores.ndim == 2 else self._rank_of_views(scores).numpy()

    def _combine_monitored_views(self, scores):
        if self.rule_.objective == "macro":
            return self._combine_views(scores)
        return self._rank_of_views(scores.cpu().numpy())

    def _rank_monitored(self, scores):
        return scores if self.objective == "macro" else self._rule_scores(scores)

    def _rank_of_views(self, scores):
        log_proba = self._log_proba(scores.reshape(-1, scores.shape[2]))
        return self._log_marginals_of_views(torch.from_numpy(log_proba).view(scores.shape))

    def _log_marginals_of_views(self, log_odds):
        """Combine views by the top-k marginals of Berrada et al. 2018, appendix C.

        Marginals that are one to rounding leave the order to the mean probabilities, in a part
        too small to change any other.
        """
        mean = self._log_mean_of_views(log_odds)
        if self.k >= log_odds.shape[-1]:
            return mean
        marginals = top_k_marginals(log_odds.flatten(0, 1), self.k).unflatten(
            0, log_odds.shape[:2]
        )
        tiny = torch.finfo(torch.float64).tiny
        return torch.log(marginals.mean(1).clamp_min(tiny)) + 1e-9 * mean.clamp_min(-1e3)
