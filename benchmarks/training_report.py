"""Turn the figures of the training benchmark into a page with tables and plots."""

import os

import measuring

#: (part, row, reference, smallest or largest ratio of their costs, and which of the two).
TARGETS = (
    ("fit", "estimator", "bare loop", 1.15, "≤"),
    ("fit", "skorch", "estimator", 2.0, "≥"),
    ("fit", "skorch, 20 % held out (its default)", "estimator, 20 % held out", 2.0, "≥"),
    ("convnet", "estimator", "bare loop", 1.05, "≤"),
    ("predict", "TopKClassifier.predict_set", "forward and torch.topk", 1.1, "≤"),
)
STEP_TARGETS = {"perceptron": 1.5, "convnet": 1.02}
IMPORT_TARGET = 0.3
TITLES = {
    "fit": "Fit of a table",
    "sparse": "Sparse tables, 100 classes",
    "convnet": "An epoch of the small convnet on images of 32 x 32 bytes, batches of 64",
    "predict": "Prediction: 256 features, hidden layer of 256, 1000 classes",
    "steps": "A training step",
}


def _cases(results, part):
    """Return {case: timings}; a part with a single case is called by its own name."""
    found = results.get(part, {})
    nested = all("cpu_ms" not in timing for timing in found.values())
    return found if nested else {part: found}


def _ratio_lines(what, one, other, limit, sign):
    """Return the row of a target: both ratios, and whether that of CPU time meets it."""
    cpu, wall = (one[field] / other[field] for field in ("cpu_ms", "wall_ms"))
    met = cpu <= limit if sign == "≤" else cpu >= limit
    return [what, f"{cpu:.2f}", f"{wall:.2f}", f"{sign} {limit}", "met" if met else "**not met**"]


def _targets(results):
    lines = []
    for part, name, other, limit, sign in TARGETS:
        for case, timings in _cases(results, part).items():
            what = f"{name} / {other} ({case})"
            lines.append(_ratio_lines(what, timings[name], timings[other], limit, sign))
    for case, timings in _cases(results, "steps").items():
        for name in timings:
            if name != "cross-entropy":
                what = f"step of the {case}: {name} / cross-entropy"
                limit = STEP_TARGETS[case.split()[0].rstrip(",")]
                pair = timings[name], timings["cross-entropy"]
                lines.append(_ratio_lines(what, *pair, limit, "≤"))
    if "import" in results:
        spent = {f"{clock}_ms": results["import"][f"{clock}_s"] for clock in ("cpu", "wall")}
        one = {"cpu_ms": 1, "wall_ms": 1}
        what = "seconds to import, after torch and sklearn"
        lines.append(_ratio_lines(what, spent, one, IMPORT_TARGET, "≤"))
    return measuring.table(["", "measured (CPU)", "(wall)", "target", ""], lines)


def _timing_table(timings):
    rows = [
        [
            name,
            measuring.short(timing["cpu_ms"]),
            f"{timing['cpu_ratio']:.2f}",
            f"{timing['wall_ratio']:.2f}",
            timing["rounds"],
        ]
        for name, timing in timings.items()
    ]
    header = ["", "CPU ms", "ratio (CPU)", "ratio (wall)", "rounds"]
    return measuring.table(header, rows)


def _lines_of(rows, along):
    """Return {name: (x, milliseconds)}."""
    series = {}
    for row in rows:
        for name, timing in row["timings"].items():
            x, y = series.setdefault(name, ([], []))
            x.append(row[along])
            y.append(timing["cpu_ms"])
    return series


def _growth_table(rows, along):
    series = _lines_of(rows, along)
    x = next(iter(series.values()))[0]
    lines = [
        [name, *map(measuring.short, y), f"{measuring.slope(x, y):.2f}" if len(x) > 1 else "–"]
        for name, (_, y) in series.items()
    ]
    return measuring.table([f"CPU ms, {along} =", *x, "slope"], lines)


def plot(results, path):
    """Plot the cost against n, and the step of DenseNet 40-40 against k."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for name, (x, y) in _lines_of(results.get("growth", []), "n_samples").items():
        slope = f": slope {measuring.slope(x, y):.2f}" if len(x) > 1 else ""
        axes[0].loglog(x, y, "o-", label=name + slope)
    axes[0].set(xlabel="number of samples n (20 features, 20 classes)", ylabel="CPU ms")
    for name, (x, y) in _lines_of(results.get("densenet", []), "k").items():
        style = "k--" if name == "cross-entropy" else "s:" if name == "smooth-topk" else "o-"
        axes[1].plot(x, y, style, label=name)
    axes[1].set(xlabel="K", ylabel="CPU ms, one step of DenseNet 40-40", ylim=(0, None))
    for axis in axes:
        if axis.lines:
            axis.legend(fontsize=8)
    measuring.save_picture(figure, path)
    plt.close(figure)


def _head(results):
    versions = ", ".join(f"{k} {v}" for k, v in results["versions"].items() if v)
    return [
        "# Speed of training and prediction",
        "",
        "Made by `python benchmarks/training.py report` from the figures of `run`; not edited.",
        "",
        f"Processor: {results['device']}, {results['vector_instructions']}, "
        f"{results['threads']} thread, compiled kernels: {results['kernels'] or 'none'}; "
        f"{results['system']}, Python {results['python']}; "
        f"{versions}.",
        "",
        "What is compared took turns in one process and did the same work (same network, loss, "
        "optimiser, batch size, epochs); the figures are medians. *CPU* is the time of the "
        "process, *wall* the time on the clock, which the load of the machine disturbs. Small "
        "noise is a tenth of the standard deviation of the scores at the start, large noise once "
        "it. Labels are random, so that nothing is learnt: before it warns of that, the estimator "
        "scores some hundreds of training samples again, which is a noticeable part of an epoch "
        "of 640 images.",
        "",
    ]


def write(results_path, page):
    """Write the page, and the plots beside the results."""
    results = measuring.read_json(results_path)
    picture = results_path.with_name("training.png")
    plot(results, picture)
    lines = [*_head(results), "## Targets", "", *_targets(results)]
    for part, title in TITLES.items():
        for case, timings in _cases(results, part).items():
            named = title if case == part else f"{title}: {case}"
            lines += [f"## {named}", "", *_timing_table(timings)]
    if "growth" in results or "densenet" in results:
        link = measuring.link(picture, page)
        lines += ["## How the cost grows", "", f"![Cost against n and K]({link})", ""]
    if "growth" in results:
        lines += _growth_table(results["growth"], "n_samples")
    if "densenet" in results:
        batch = results["densenet"][0]["batch_size"]
        lines += [
            f"A step of DenseNet 40-40 on {batch} images of 32 x 32 (the comparison of Garcin et "
            "al., ICML 2022, Figure 3):",
            "",
            *_growth_table(results["densenet"], "k"),
        ]
    page.write_text("\n".join(lines).rstrip() + "\n")
