"""What the papers claim, and the differences here that speak to it."""

from dataclasses import dataclass

from .statistics import BETTER, LEVEL, WORSE

CE = "cross_entropy"
CLEAN = ("label_noise_omniglot_0.0", "label_noise_cifar100_0.0")
NOISY = (
    "label_noise_omniglot_0.2",
    "label_noise_omniglot_0.4",
    "label_noise_omniglot_0.6",
    "label_noise_cifar100_0.2",
    "label_noise_cifar100_0.4",
    "label_noise_cifar100_0.6",
)
AVERAGE_K_TAILS = ("average_k_tail_plantnet", "average_k_tail_cifar100")
AVERAGE_K = ("average_k_banking77", *AVERAGE_K_TAILS)
TAILS = ("long_tail_plantnet", "long_tail_cifar100", "long_tail_grocery", "long_tail_banking77")


@dataclass(frozen=True)
class Claim:
    """A claim about the difference between two (contender, rule).

    Parameters
    ----------
    text : str
    printed : str
        What the papers print, with the place.
    experiments : tuple of str
        Where it is measured.
    left, right : tuple of str
        Contender and rule.
    expected : {"better", "worse", "no difference seen"} or None
        What the claim says of left beside right; None for an open question.
    figure : str
        What is compared; see `statistics.Measurements.values`.
    """

    text: str
    printed: str
    experiments: tuple
    left: tuple
    right: tuple
    expected: str | None = BETTER
    figure: str = "coverage"

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


def _average_k(text, printed, left, right, expected=BETTER, experiments=AVERAGE_K):
    left, right = (left, "average_k"), (right, "average_k")
    return Claim(text, printed, experiments, left, right, expected)


def _tail(text, printed, left, right=None, rules=("top_k", "top_k"), expected=BETTER):
    left, right = (left, rules[0]), (right or CE, rules[1])
    return Claim(text, printed, TAILS, left, right, expected)


def _noise(text, printed, left, expected=BETTER, figure="coverage", experiments=NOISY):
    return Claim(text, printed, experiments, (left, "top_k"), (CE, "top_k"), expected, figure)


def _untuned(text, printed, figure="coverage"):
    experiments = ("label_noise_omniglot_0.4", "label_noise_cifar100_0.4")
    left, right = ("former default", "top_k"), ("cross_entropy, nothing tuned", "top_k")
    return Claim(text, printed, experiments, left, right, figure=figure)


def _head(text, printed, left, expected=BETTER, figure="coverage"):
    left, right = (left, "average_k"), (CE, "average_k")
    return Claim(text, printed, AVERAGE_K_TAILS, left, right, expected, figure)


def _setting(text, printed, left, right, expected=LEVEL, experiment="sensitivity_top_k"):
    rule = "top_k" if experiment == "sensitivity_top_k" else "average_k"
    return Claim(text, printed, (experiment,), (left, rule), (right, rule), expected)


CLAIMS = [
    _average_k(
        "The two-head loss beats cross-entropy at equal average size",
        "CIFAR-100, K = 5: 97.35 ± 0.06 against 96.83 ± 0.16 (thesis, Table 5.1)",
        "multi_label_head",
        CE,
    ),
    _average_k(
        "The two-head loss beats the noised top-K loss, thresholded",
        "CIFAR-100, K = 5: 97.35 ± 0.06 against 96.32 ± 0.05 (thesis, Table 5.1)",
        "multi_label_head",
        "noised_hinge",
    ),
    _average_k(
        "Assume-negative is close to cross-entropy where ambiguity is low",
        "CIFAR-100, K = 5: 96.71 ± 0.02 against 96.83 ± 0.16 (thesis, Table 5.1)",
        "assume_negative",
        CE,
        LEVEL,
        AVERAGE_K[:1],
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
        ("average_k_banking77",),
        ("multi_label_head", "average_k"),
        ("multi_label_head", "average_k_sigmoid"),
        None,
    ),
    Claim(
        "Sets of K classes on average cover more than sets of K classes (cross-entropy, each "
        "tuned for its rule)",
        "the motive of thesis, chapter 5; no figures side by side",
        ("average_k_banking77",),
        (CE, "average_k"),
        (CE, "top_k_of_average_k"),
    ),
    _tail(
        "The smoothed hinge fails on tail classes",
        "Pl@ntNet-300K, macro top-5: 50.9 ± 0.3 against 68.7 ± 0.2 (thesis, Table 4.5)",
        "smoothed_hinge",
        expected=WORSE,
    ),
    _tail(
        "The balanced noised hinge is like cross-entropy on a long tail",
        "Pl@ntNet-300K, macro top-5: 66.4 ± 0.5 against 68.7 ± 0.2 (thesis, Table 4.5)",
        "noised_balanced",
        expected=LEVEL,
    ),
    _tail(
        "The imbalanced noised hinge beats cross-entropy on a long tail",
        "Pl@ntNet-300K, macro top-1 / 3 / 5: 42.4 / 64.9 / 73.2 against 36.3 / 58.8 / 68.7 "
        "(thesis, Table 4.5)",
        "noised_imbalanced",
    ),
    _tail(
        "The imbalanced noised hinge beats LDAM",
        "Pl@ntNet-300K, macro top-1 / 3 / 5: 42.4 / 64.9 / 73.2 against 40.6 / 63.3 / 71.9 "
        "(thesis, Table 4.5)",
        "noised_imbalanced",
        "ldam",
    ),
    _tail(
        "LDAM beats cross-entropy on a long tail",
        "Pl@ntNet-300K, macro top-5: 71.9 ± 0.3 against 68.7 ± 0.2 (thesis, Table 4.5)",
        "ldam",
    ),
    _tail(
        "LDAM beats a cross-entropy with the same cosine head: what its margins are worth",
        "not printed",
        "ldam",
        "cosine_cross_entropy",
    ),
    _tail(
        "The same with the macro rule",
        "not printed",
        "ldam",
        "cosine_cross_entropy",
        rules=("top_k_macro", "top_k_macro"),
    ),
    _tail(
        "Focal loss beats cross-entropy on a long tail",
        "Pl@ntNet-300K, macro top-5: 69.7 ± 0.3 against 68.7 ± 0.2 (thesis, Table 4.5)",
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
    _noise(
        "Without label noise the smoothed hinge equals cross-entropy in top-5",
        "CIFAR-100, p = 0: 93.3 ± 0.0 against 94.2 ± 0.1 (thesis, Table 4.4; 94.34 against 94.24 "
        "in ICML, Table 4)",
        "smoothed_hinge",
        LEVEL,
        experiments=CLEAN,
    ),
    _noise(
        "Without label noise the noised hinge equals cross-entropy in top-5",
        "CIFAR-100, p = 0: 94.4 ± 0.1 against 94.2 ± 0.1 (thesis, Table 4.4)",
        "noised_hinge",
        LEVEL,
        experiments=CLEAN,
    ),
    _noise(
        "With labels redrawn inside groups the smoothed hinge beats cross-entropy in top-5",
        "CIFAR-100, p = 0.2: 90.4 ± 0.2 against 87.6 ± 0.1; p = 0.4: 87.4 ± 0.1 against "
        "83.6 ± 0.2 (thesis, Table 4.4)",
        "smoothed_hinge",
    ),
    _noise(
        "With labels redrawn inside groups the noised hinge beats cross-entropy in top-5",
        "CIFAR-100, p = 0.2: 90.7 ± 0.5 against 87.6 ± 0.1; p = 0.4: 87.8 ± 0.6 against "
        "83.6 ± 0.2 (thesis, Table 4.4)",
        "noised_hinge",
    ),
    _noise(
        "Trained for top-5 without label noise, the noised hinge loses top-1",
        "CIFAR-100, p = 0: 68.7 ± 0.3 against 76.6 ± 0.1 (thesis, Table 4.7)",
        "noised_hinge",
        WORSE,
        "top_1",
        CLEAN,
    ),
    _noise(
        "With label noise, trained for top-5, the noised hinge gains top-1",
        "CIFAR-100, p = 0.2: 69.4 ± 0.5 against 68.1 ± 0.1; p = 0.4: 69.1 ± 0.4 against "
        "61.8 ± 0.4 (thesis, Table 4.7)",
        "noised_hinge",
        figure="top_1",
    ),
    _noise(
        "With label noise, trained for top-5, the smoothed hinge gains top-1",
        "CIFAR-100, p = 0.2: 71.3 ± 0.3 against 68.1 ± 0.1; p = 0.4: 70.6 ± 0.2 against "
        "61.8 ± 0.4 (thesis, Table 4.7)",
        "smoothed_hinge",
        figure="top_1",
    ),
    _untuned(
        "Both trained for long and nothing tuned, the noised hinge beats cross-entropy in top-5 "
        "under label noise",
        "CIFAR-100, p = 0.4, 300 epochs: 87.8 ± 0.6 against 83.6 ± 0.2 (thesis, Table 4.4)",
    ),
    _untuned(
        "Likewise in top-1",
        "CIFAR-100, p = 0.4: 69.1 ± 0.4 against 61.8 ± 0.4 (thesis, Table 4.7)",
        "top_1",
    ),
    _head(
        "The two-head loss beats cross-entropy on classes of few samples, at equal average size",
        "Pl@ntNet-300K, few-shot classes, K = 2 / 3 / 5: 23.77 / 40.39 / 55.83 against 27.08 / "
        "38.44 / 35.39 (thesis, Table 5.2)",
        "multi_label_head",
        figure="few",
    ),
    _head(
        "The same, its proposal head making the sets",
        "not in the papers",
        "proposal_head",
        figure="few",
    ),
    _head(
        "Assume-negative fails on classes of few samples",
        "Pl@ntNet-300K, few-shot classes, K = 2 / 3 / 5: 2.05 / 7.46 / 20.31 against 27.08 / "
        "38.44 / 35.39 (thesis, Table 5.2)",
        "assume_negative",
        WORSE,
        "few",
    ),
    Claim(
        "The macro rule for average-K beats the two-head loss on classes of few samples",
        "not in the papers",
        AVERAGE_K_TAILS,
        (CE, "average_k_macro"),
        ("multi_label_head", "average_k"),
        figure="few",
    ),
    _setting(
        "Without noise (epsilon = 0) the top-K hinge is worse (in the paper it fails to train)",
        "CIFAR-100, top-5 in validation: 19.38 against 94.24 at epsilon = 1 (ICML, Table 2)",
        "epsilon = 0",
        "epsilon = 1",
        WORSE,
    ),
    _setting(
        "With too little noise (epsilon = 0.001) it is worse as well (in the paper it fails)",
        "CIFAR-100, top-5 in validation: 11.4 against 94.24 at epsilon = 1 (ICML, Table 2)",
        "epsilon = 0.001",
        "epsilon = 1",
        WORSE,
    ),
    _setting(
        "Much noise (epsilon = 100) does little harm",
        "CIFAR-100, top-5 in validation: 93.12 against 94.24 at epsilon = 1 (ICML, Table 2)",
        "epsilon = 100",
        "epsilon = 1",
    ),
    _setting(
        "The number of draws matters little",
        "CIFAR-100, top-5 in validation: 94.28 with 1 draw against 94.52 with 100 (ICML, Table 3)",
        "1 draws",
        "100 draws",
    ),
    _setting(
        "The two-head loss is stable for alpha from 0.01 to 10",
        "read off thesis, Figure 5.5",
        "multi_label_head, alpha = 10",
        "multi_label_head, alpha = 0.01",
        experiment="sensitivity_average_k",
    ),
    _setting(
        "The two-head loss fails for very large alpha",
        "read off thesis, Figure 5.5",
        "multi_label_head, alpha = 1000",
        "multi_label_head, alpha = 0.1",
        WORSE,
        "sensitivity_average_k",
    ),
    _setting(
        "With large batches the two-head loss keeps more than cross-entropy (all samples in one "
        "batch, at the same learning rate as small ones)",
        "read off thesis, Figure 5.6, at a constant ratio of learning rate to batch size",
        "multi_label_head, 770 in a batch",
        "cross_entropy, 770 in a batch",
        BETTER,
        "sensitivity_average_k",
    ),
]
