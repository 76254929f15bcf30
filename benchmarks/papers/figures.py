"""A picture of each experiment: differences to the reference, with their intervals."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from sksetvalued.metrics import SetSizeDisplay


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
    names = m.experiment.contenders
    size = (2.8 * len(rules) + 0.1 * max(map(len, names)), max(3.6, 1 + 0.22 * len(names)))
    figure, axes = plt.subplots(1, len(rules), figsize=size, sharey=True, layout="constrained")
    for rule, ax in zip(rules, axes if len(rules) > 1 else [axes]):
        _draw_panel(ax, m, rule, (reference, rules[0]))
    figure.legend(*ax.get_legend_handles_labels(), loc="outside right upper", fontsize="small")
    _save(figure, path)


def draw_sizes(m, rule, k, path):
    """Draw the sizes of the sets by shot group, one panel for each contender.

    Returns whether the sizes were recorded.
    """
    names = [n for n in m.experiment.contenders if m.has(n, rule, k)]
    sizes = {name: m.set_sizes(name, rule, k) for name in names}
    sizes = {name: counts for name, counts in sizes.items() if counts is not None}
    if not sizes:
        return False
    figure, axes = plt.subplots(
        len(sizes), 1, figsize=(7, 2.9 * len(sizes)), layout="constrained", squeeze=False
    )
    for (name, counts), ax in zip(sizes.items(), axes[:, 0]):
        groups, of_size = np.indices(counts.shape)
        SetSizeDisplay(
            np.repeat(of_size, counts.ravel()),
            counts.shape[1],
            groups=np.repeat(groups, counts.ravel()),
            name=name,
        ).plot(ax=ax)
        ax.set(xlabel="Set size (classes)", ylabel="Share of the group (%)")
    _save(figure, path)
    return True


def draw_level_sets(record, path):
    """Draw losses on the scores of three classes, the true one at the top."""
    scores = np.array(record["scores"]) / 2
    x, y = scores[:, 2] + scores[:, 1] / 2, scores[:, 1] * np.sqrt(3) / 2
    panels = record["level_sets"]
    figure, axes = plt.subplots(2, -(-len(panels) // 2), figsize=(11, 5.2), layout="constrained")
    levels = np.linspace(0, 1, 11)
    for (name, values), ax in zip(panels.items(), axes.flat):
        # A plateau on the highest level is not drawn.
        drawn = ax.tricontourf(x, y, np.minimum(values, 0.9999), levels=levels)
        ax.set_title(name, fontsize="small")
        ax.set_aspect("equal")
        ax.set_axis_off()
    figure.colorbar(drawn, ax=axes, shrink=0.7, label="loss, rescaled")
    _save(figure, path)


def _save(figure, path):
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
    if max(np.abs(ax.get_xlim())) > 30:
        ax.set_xscale("symlog", linthresh=5)
        ticks = (-100, -20, -5, 0, 5)
        ax.set_xticks(ticks, map(str, ticks))
    ax.set(title=rule, yticks=range(len(names)), yticklabels=names)
    ax.set_xlabel(f"coverage minus {reference[0]}\nby {reference[1]} (points)")
    ax.set_ylim(len(names) - 0.5, -0.5)
