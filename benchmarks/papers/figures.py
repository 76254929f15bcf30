"""A picture of each experiment: differences to the reference, with their intervals."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def draw_differences(m, rules, path):
    """Draw the paired differences to the reference by its own first rule.

    Parameters
    ----------
    m : Measurements
    rules : list of str
        One panel each.
    path : Path
        Of the picture.
    """
    reference = next(iter(m.experiment.contenders))
    figure, axes = plt.subplots(
        1, len(rules), figsize=(4.2 * len(rules), 3.6), sharey=True, layout="constrained"
    )
    for rule, ax in zip(rules, axes if len(rules) > 1 else [axes]):
        _draw_panel(ax, m, rule, (reference, rules[0]))
    figure.legend(*ax.get_legend_handles_labels(), loc="outside right upper", fontsize="small")
    figure.savefig(path, dpi=90, metadata={"Software": None})
    plt.close(figure)


def _draw_panel(ax, m, rule, reference):
    names = list(m.experiment.contenders)
    ks = [k for k in m.experiment.ks if m.has(*reference, k)]
    for i, k in enumerate(ks):
        shown = [
            (j, n) for j, n in enumerate(names) if m.has(n, rule, k) and (n, rule) != reference
        ]
        gaps = [m.difference((n, rule), reference, k) for _, n in shown]
        heights = [j + 0.6 * (i - (len(ks) - 1) / 2) / len(ks) for j, _ in shown]
        means, halves = zip(*gaps) if gaps else ((), ())
        ax.errorbar(means, heights, xerr=halves, fmt="o", markersize=4, label=f"K = {k}")
    ax.axvline(0, color="0.6", linewidth=1)
    ax.set(title=rule, yticks=range(len(names)), yticklabels=names)
    ax.set_xlabel(f"coverage minus {reference[0]}\nby {reference[1]} (points)")
    ax.set_ylim(len(names) - 0.5, -0.5)
