"""What the papers claim, and the differences here that speak to it."""

from dataclasses import dataclass

from .statistics import BETTER, LEVEL, WORSE

CE = "cross_entropy"


@dataclass(frozen=True)
class Claim:
    """A claim about the difference between two (contender, rule).

    Parameters
    ----------
    text : str
    printed : str
        What the papers print, with the place.
    experiment : str
    left, right : tuple of str
        Contender and rule.
    expected : {"better", "worse", "no difference seen"} or None
        What the claim says of left beside right; None for an open question.
    """

    text: str
    printed: str
    experiment: str
    left: tuple
    right: tuple
    expected: str | None = BETTER

    def judge(self, seen):
        """Return the verdict in words, from what was seen at each K.

        Parameters
        ----------
        seen : dict of K -> {"better", "worse", "no difference seen", "one seed only"}
        """
        level = self.expected == LEVEL
        if self.expected is None:
            parts = {result: result for result in (BETTER, WORSE, LEVEL)}
        else:
            parts = {self.expected: "no difference seen, as claimed" if level else "holds"}
            parts |= {} if level else {LEVEL: "not seen"}
            opposite = {BETTER: WORSE, WORSE: BETTER}.get(self.expected)
            others = (opposite,) if opposite else (BETTER, WORSE)
            parts |= {other: f"the contrary ({other})" for other in others}
        parts["one seed only"] = "one seed only"
        found = {
            text: [f"{k:g}" for k, result in seen.items() if result == key]
            for key, text in parts.items()
        }
        return "; ".join(f"{t} at K = {', '.join(ks)}" for t, ks in found.items() if ks)


def _average_k(text, printed, left, right, expected=BETTER):
    left, right = (left, "average_k"), (right, "average_k")
    return Claim(text, printed, "average_k_banking77", left, right, expected)


def _tail(text, printed, left, right=None, rules=("top_k", "top_k"), expected=BETTER):
    left, right = (left, rules[0]), (right or CE, rules[1])
    return Claim(text, printed, "long_tail_banking77", left, right, expected)


CLAIMS = [
    _average_k(
        "The two-head loss beats cross-entropy at equal average size",
        "CIFAR-100, K = 5: 97.35 ± 0.06 against 96.83 ± 0.16 (thesis, Table 5.1)",
        "two_head",
        CE,
    ),
    _average_k(
        "The two-head loss beats the noised top-K loss, thresholded",
        "CIFAR-100, K = 5: 97.35 ± 0.06 against 96.32 ± 0.05 (thesis, Table 5.1)",
        "two_head",
        "noised_hinge",
    ),
    _average_k(
        "Assume-negative is close to cross-entropy where ambiguity is low",
        "CIFAR-100, K = 5: 96.71 ± 0.02 against 96.83 ± 0.16 (thesis, Table 5.1)",
        "assume_negative",
        CE,
        LEVEL,
    ),
    _average_k(
        "Expected-positive lags behind cross-entropy",
        "CIFAR-100, K = 5: 95.88 ± 0.05 against 96.83 ± 0.16 (thesis, Table 5.1)",
        "expected_positive",
        CE,
        WORSE,
    ),
    _average_k(
        "ROLE lags behind cross-entropy",
        "CIFAR-100, K = 5: 96.12 ± 0.11 against 96.83 ± 0.16 (thesis, Table 5.1)",
        "role",
        CE,
        WORSE,
    ),
    Claim(
        "Softmax or sigmoid scores of the multi-label head: which to threshold",
        "left open by the thesis",
        "average_k_banking77",
        ("two_head", "average_k"),
        ("two_head", "average_k_sigmoid"),
        None,
    ),
    Claim(
        "Sets of K classes on average cover more than sets of K classes (cross-entropy, each "
        "tuned for its rule)",
        "the motive of thesis, chapter 5; no figures side by side",
        "average_k_banking77",
        (CE, "average_k"),
        (CE, "top_k_of_average_k"),
    ),
    _tail(
        "The smoothed hinge fails on tail classes",
        "Pl@ntNet-300K, macro top-5: 50.9 ± 0.3 against 68.7 ± 0.2 (ICML, Table 5)",
        "smoothed_hinge",
        expected=WORSE,
    ),
    _tail(
        "The balanced noised hinge is like cross-entropy on a long tail",
        "Pl@ntNet-300K, macro top-5: 66.4 ± 0.5 against 68.7 ± 0.2 (ICML, Table 5)",
        "noised_balanced",
        expected=LEVEL,
    ),
    _tail(
        "The imbalanced noised hinge beats cross-entropy on a long tail",
        "Pl@ntNet-300K, macro top-1 / 3 / 5: 42.4 / 64.9 / 73.2 against 36.3 / 58.8 / 68.7 "
        "(ICML, Table 5)",
        "noised_imbalanced",
    ),
    _tail(
        "The imbalanced noised hinge beats LDAM",
        "Pl@ntNet-300K, macro top-1 / 3 / 5: 42.4 / 64.9 / 73.2 against 40.6 / 63.3 / 71.9 "
        "(ICML, Table 5)",
        "noised_imbalanced",
        "ldam",
    ),
    _tail(
        "LDAM beats cross-entropy on a long tail",
        "Pl@ntNet-300K, macro top-5: 71.9 ± 0.3 against 68.7 ± 0.2 (ICML, Table 5)",
        "ldam",
    ),
    _tail(
        "LDAM beats a cross-entropy with the same cosine head: what its margins are worth",
        "not printed",
        "ldam",
        "cosine_cross_entropy",
    ),
    _tail(
        "Focal loss beats cross-entropy on a long tail",
        "Pl@ntNet-300K, macro top-5: 69.7 ± 0.3 against 68.7 ± 0.2 (ICML, Table 5)",
        "focal",
    ),
    _tail(
        "The macro rule beats the micro rule, for cross-entropy",
        "not in the papers",
        CE,
        rules=("top_k_macro", "top_k"),
    ),
    _tail(
        "Cross-entropy with the macro rule beats the imbalanced noised hinge as the papers use it",
        "not in the papers",
        CE,
        "noised_imbalanced",
        rules=("top_k_macro", "top_k"),
    ),
    _tail(
        "Cross-entropy with the macro rule beats the imbalanced noised hinge with that rule too",
        "not in the papers",
        CE,
        "noised_imbalanced",
        rules=("top_k_macro", "top_k_macro"),
    ),
    _tail(
        "Logit-adjusted training beats cross-entropy with the macro rule",
        "not in the papers",
        "logit_adjusted",
        rules=("top_k_macro", "top_k_macro"),
    ),
]
