"""Turn the figures of the speed benchmark into a page with tables and plots."""

import os

import measuring

SMALL, LARGE = "small noise", "large noise"
#: (ours, other, smallest ratio of their cost to ours), at a size.
PEER_TARGETS = {
    (64, 100, 5): (
        ("calibrated hinge", "plain hinge", 1),
        (f"noised hinge, 3 draws, {SMALL}", "plain noised hinge, 3 draws", 1),
        (f"noised hinge, 10 draws, {SMALL}", "plain noised hinge, 10 draws", 1),
        ("smoothed hinge", "plain smoothed hinge", 1),
    ),
    (256, 1000, 5): (
        (f"noised hinge, 3 draws, {SMALL}", "pytopk, 3 draws", 6),
        (f"noised hinge, 10 draws, {SMALL}", "pytopk, 10 draws", 17),
        (f"noised hinge, 3 draws, {LARGE}", "pytopk, 3 draws", None),
        (f"noised hinge, 10 draws, {LARGE}", "pytopk, 10 draws", None),
        ("smoothed hinge", "smooth-topk", 14),
        ("sparse-top projection", "jaxopt projection", 1),
        ("sparse-top projection", "entmax budget_bisect", 1),
    ),
    (256, 1000, 50): (
        (f"noised hinge, 3 draws, {SMALL}", "pytopk, 3 draws", None),
        ("smoothed hinge", "smooth-topk", None),
        ("sparse-top projection", "jaxopt projection", 1),
    ),
    (64, 10_000, 5): (
        (f"noised hinge, 3 draws, {SMALL}", "pytopk, 3 draws", None),
        (f"noised hinge, 10 draws, {SMALL}", "pytopk, 10 draws", None),
        ("smoothed hinge", "smooth-topk", None),
        ("sparse-top projection", "jaxopt projection", 1),
    ),
    (64, 100_000, 5): (
        (f"noised hinge, 3 draws, {SMALL}", "pytopk, 3 draws", 30),
        (f"noised hinge, 10 draws, {SMALL}", "pytopk, 10 draws", 100),
        (f"noised hinge, 3 draws, {LARGE}", "pytopk, 3 draws", None),
        (f"noised hinge, 10 draws, {LARGE}", "pytopk, 10 draws", None),
        ("smoothed hinge", "smooth-topk", 100),
        ("sparse-top projection", "jaxopt projection", 1),
    ),
}
#: Largest ratios to cross-entropy, K = 5, for 100, 1000, 10^4 and 10^5 classes.
COST_TARGETS = {
    f"noised hinge, 3 draws, {SMALL}": (5, 2.5, 1.5, 0.6),
    f"noised hinge, 3 draws, {LARGE}": (6, 6, 5, 4),
    "smoothed hinge": (12, 5, 2.5, 1.5),
    "sparse-top projection": (4, 2.5, 1.2, 0.6),
}
TARGET_CELLS = ((64, 100, 5), (256, 1000, 5), (64, 10_000, 5), (64, 100_000, 5))
MEMORY_TARGET = 1.5
DRAWN = (
    f"noised hinge, 3 draws, {SMALL}",
    f"noised hinge, 10 draws, {SMALL}",
    f"noised hinge, 3 draws, {LARGE}",
    "smoothed hinge",
    "sparse-top projection",
    "pytopk, 3 draws",
    "pytopk, 10 draws",
    "smooth-topk",
    "jaxopt projection",
)


def _key(cell):
    return cell["n_samples"], cell["n_classes"], cell["k"]


def _label(key):
    return f"{key[0]} x {key[1]}, K={key[2]}"


def _verdict(met):
    return "met" if met else "**not met**"


def _cost_table(cells, field):
    names = list(cells[0]["contenders"])
    rows = [
        [name, *(measuring.short(cell["contenders"][name][field]) for cell in cells)]
        for name in names
    ]
    return measuring.table(["", *(_label(_key(cell)) for cell in cells)], rows)


def _peer_table(cells):
    rows = []
    for cell in cells:
        measured = cell["contenders"]
        for mine, other, target in PEER_TARGETS.get(_key(cell), ()):
            if other not in measured:
                continue
            times = [measured[other][f] / measured[mine][f] for f in ("cpu_ms", "wall_ms")]
            goal = "–" if target is None else f"≥ {target} {_verdict(times[0] >= target)}"
            rows.append([_label(_key(cell)), mine, other, *(f"{t:.1f}" for t in times), goal])
    header = ["size", "this package", "other", "times faster (CPU)", "(wall)", "target"]
    return measuring.table(header, rows)


def _target_table(cells):
    found = {_key(cell): cell["contenders"] for cell in cells}
    keys = [key for key in TARGET_CELLS if key in found]
    rows = []
    for name, targets in COST_TARGETS.items():
        row = [name]
        for key, target in zip(TARGET_CELLS, targets):
            if key in found:
                ratio = found[key][name]["cpu_ratio"]
                row.append(f"{ratio:.2f} ≤ {target}: {_verdict(ratio <= target)}")
        rows.append(row)
    return measuring.table(["", *map(_label, keys)], rows)


def _memory_lines(cells):
    """Return the verdict on the memory of the noised losses for 1000 classes and more."""
    values = [
        cell["contenders"][name]["memory"]
        for cell in cells
        for name in cell["contenders"]
        if name.startswith("noised") and cell["n_classes"] >= 1000
    ]
    if not values:
        return []
    verdict = _verdict(max(values) <= MEMORY_TARGET)
    return [
        f"Noised hinge, 1000 classes and more: at most {measuring.short(max(values))}, target "
        f"{MEMORY_TARGET}: {verdict}.",
        "",
    ]


def _series(results, along):
    """Return {name: (x, milliseconds)} against "n_classes", "k" or "n_draws"."""
    cells = results["draws"] if along == "n_draws" else results["cells"]
    if along == "n_classes":
        cells = [cell for cell in cells if (cell["n_samples"], cell["k"]) == (64, 5)]
    elif along == "k":
        cells = [cell for cell in cells if (cell["n_samples"], cell["n_classes"]) == (256, 1000)]
    cells = sorted(cells, key=lambda cell: cell[along])
    series = {}
    for cell in cells:
        for name, timing in cell["contenders"].items():
            if along == "n_draws" or name == "cross-entropy" or name in DRAWN:
                x, y = series.setdefault(name, ([], []))
                x.append(cell[along])
                y.append(timing["cpu_ms"])
    return {name: line for name, line in series.items() if len(line[0]) > 1}


PANELS = {
    "n_classes": "number of classes L (64 samples, K=5)",
    "k": "K (256 samples, 1000 classes)",
    "n_draws": "draws of noise (256 samples, 1000 classes, K=5)",
}


def plot(results, path):
    """Plot the cost against L, K and the number of draws, slopes in the legends."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(15, 7), layout="constrained")
    for axis, (along, label) in zip(axes, PANELS.items()):
        for name, (x, y) in _series(results, along).items():
            style = "k--" if name == "cross-entropy" else "o-"
            style = "s:" if name.startswith(("pytopk", "smooth-topk", "jaxopt")) else style
            slope = measuring.slope(x, y)
            axis.loglog(x, y, style, markersize=4, label=f"{name}: slope {slope:.2f}")
        axis.set(xlabel=label, ylabel="CPU ms, forward + backward")
        if axis.lines:
            axis.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.1))
    measuring.save_picture(figure, path)
    plt.close(figure)


def _slopes(results):
    rows = []
    for along, label in PANELS.items():
        for name, (x, y) in _series(results, along).items():
            rows.append([name, label, f"{min(x)} to {max(x)}", f"{measuring.slope(x, y):.2f}"])
    return measuring.table(["", "against", "range", "slope"], rows)


def _head(results):
    versions = ", ".join(f"{k} {v}" for k, v in results["versions"].items() if v)
    absent = ", ".join(results["absent"])
    missing = f" Not found, so not measured: {absent}." if absent else ""
    epsilon = results["epsilon"]
    return [
        "# Speed of the losses",
        "",
        "Made by `python benchmarks/speed.py report` from the figures of `run`; not edited.",
        "",
        f"Processor: {results['device']}, {results['vector_instructions']}, "
        f"{results['threads']} thread, compiled kernels: {results['kernels'] or 'none'}; "
        f"{results['system']}, Python {results['python']}; "
        f"{versions}.{missing}",
        "",
        "Forward and backward on float32 scores drawn from the standard normal law. All functions "
        "of a column took turns in one process; the figures are medians. *CPU* is the time of "
        "the process, *wall* the time on the clock, which the load of the machine disturbs. "
        f"Small noise has the standard deviation {epsilon['small']}, large noise "
        f"{epsilon['large']}; pytopk has the small one, and its cost does not depend on it; "
        f"tau is {results['tau']}. *Projection* and *sparsemax* rows are the operator with a "
        "given gradient; the others are losses.",
        "",
    ]


def write(results_path, page):
    """Write the page, and the plot beside the results."""
    results = measuring.read_json(results_path)
    grid = [c for c in results["cells"] if _key(c) in PEER_TARGETS] or results["cells"]
    picture = results_path.with_name("speed.png")
    plot(results, picture)
    link = measuring.link(picture, page)
    lines = _head(results)
    lines += ["## Against other packages", "", *_peer_table(grid)]
    lines += ["## Against the targets, in units of the cross-entropy (CPU)", ""]
    lines += _target_table(grid)
    lines += ["## Cost in units of the cross-entropy (CPU)", "", *_cost_table(grid, "cpu_ratio")]
    lines += ["## The same on the clock (wall)", "", *_cost_table(grid, "wall_ratio")]
    lines += ["## Milliseconds of CPU", "", *_cost_table(grid, "cpu_ms")]
    lines += ["## Peak memory beyond the scores, in units of the scores", ""]
    lines += [
        "The gradient, which every row has to make, counts for 1. On a processor they are upper "
        "bounds, from what torch and NumPy allocate. The compiled kernels need about ten times "
        "the memory of one row for themselves, which is not counted.",
        "",
    ]
    lines += [*_cost_table(grid, "memory"), *_memory_lines(grid)]
    lines += ["## How the cost grows", "", f"![Cost against L, K and draws]({link})", ""]
    lines += ["The slope is the exponent of the best power law over the range.", ""]
    lines += _slopes(results)
    page.write_text("\n".join(lines).rstrip() + "\n")
