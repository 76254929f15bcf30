"""What the measurements say, in words; the figures stand in the tables of the page."""

C, B = "average_k_banking77", "long_tail_banking77"

#: (experiment that must have been run, text)
FINDINGS = [
    (
        C,
        "With few texts per class the rule is worth more than any loss: one threshold for all "
        "samples covers more than K classes for each of them, at equal average size, for nearly "
        "every loss; the noised hinge at K = 5 is the exception.",
    ),
    (
        C,
        "No loss of the papers beats cross-entropy clearly. Assume-negative, and the two-head "
        "loss when its proposal head makes the sets, are level with it or slightly ahead; the "
        "others are behind, most at K = 1.5.",
    ),
    (
        C,
        "What the two-head loss loses, its multi-label head loses: the proposal head of the same "
        "training is level with cross-entropy. For K up to 2 the search "
        "chose the smallest alpha of its grid, so that the best may lie below.",
    ),
    (C, "Softmax, not sigmoid, scores are to be thresholded, at every K, by a wide margin."),
    (
        C,
        "The default `AverageKClassifier(k)` (two_head, alpha = 1, 50 epochs) is not within half "
        "a point of the best here, at any K: its loss puts it behind, the more the smaller K. "
        'With so few samples `loss="cross_entropy"` is the safer choice.',
    ),
    (
        B,
        'On the long tail, `objective="macro"` costs no training and raises the macro coverage of '
        "nearly every loss: it takes some coverage from the classes of many samples and gives "
        "more to those of few.",
    ),
    (
        B,
        "Cross-entropy, focal loss, logit adjustment and the smoothed hinge, each with the macro "
        "rule, end close together; the logit-adjusted loss is no better than plain cross-entropy "
        "with that rule.",
    ),
    (
        B,
        "The losses with a cosine head (LDAM, imbalanced noised hinge, and cross-entropy itself "
        "with that head) are behind by several points from K = 3 on: on these features the head "
        "costs more than margins give, but for LDAM at K = 1. The papers' order is not seen.",
    ),
    (
        B,
        "The balanced noised hinge is behind cross-entropy, most with the macro rule, which wants "
        "probabilities: at K = 5 it even loses by that rule. A smoothed or noised hinge is no "
        "reason to leave cross-entropy here.",
    ),
    (
        B,
        "`TopKClassifier(k, max_margin=0.2)` as it is lies far behind. On tails of this kind take "
        '`TopKClassifier(k, loss="cross_entropy", objective="macro")`.',
    ),
    (
        B,
        "All of this is one small network on TF-IDF vectors of short texts. The papers fine-tune "
        "deep networks on images, where their losses may fare otherwise; nothing here speaks "
        "against their figures.",
    ),
]

#: (experiments that must have been run, text)
ADVICE = []
