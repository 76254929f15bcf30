"""Check and measure the package on a GPU, by one command, and write gpu.md.

    python benchmarks/gpu.py [--smooth-topk CHECKOUT] [--limit SECONDS]
    python benchmarks/gpu.py --dry [--page PAGE]

It runs the laws of the kernels, losses and estimators on CUDA, measures the losses beside
cross-entropy, pytopk and smooth-topk, and training beside bare loops and skorch, and ends within
the limit. Without a GPU it refuses to write figures. With --dry it does the same with a few laws
in Triton's interpreter and tiny cells on the processor, which shows that the script works, and
writes no page of figures.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import contenders
import measuring
import speed
import torch
import training
from torch.nn import functional as F

from sksetvalued import losses

ROOT = Path(__file__).resolve().parents[1]
PAGE = measuring.RESULTS.parent / "gpu.md"
KERNELS = ("test_triton.py", "test_smoothed_triton.py", "test_projection_triton.py")
#: What is run: files with the slow tests in them, or the tests of all others; and what a dry run
#: takes of that, files and cases.
LAWS = {
    "kernels": (KERNELS, KERNELS, "loss_and_gradient or k_up_to or digits or rows_may or exact"),
    "all other tests": (
        (),
        ("test_devices.py", "test_inputs_images.py"),
        "seed or scaled or (losses and hinge) or fits_moves or bytes_stay",
    ),
}
#: Tests that run the others where there is no GPU, and those of prose.
LEFT_OUT = ("test_interpreter.py", "test_docs.py", "test_docstrings.py", "test_imports.py")
TINY = ((4, 20, 2),)
#: The mixture of ranks and cross-entropy that TopKClassifier learns by when nothing is said.
DEFAULT = "noised mixture, the default"
#: Rows of the table and images that networks are trained on, and those of a dry run.
TRAINED = {"table": (10_000, 500), "images": (10_000, 64)}
MOST_LAWS = 0.65  # of the time
#: At 64 x 100,000, K = 5: the largest cost in units of the cross-entropy.
TARGETS = {
    "noised hinge, 3 draws, small noise": 1.0,
    "smoothed hinge": 1.0,
    "sparse-top projection": 0.75,
}


class Clock:
    """The seconds that are left."""

    def __init__(self, limit):
        self.end = time.monotonic() + limit

    def left(self, share=1.0):
        """Return a share of what is left, at least a second."""
        return max(1.0, share * (self.end - time.monotonic()))


def run_laws(name, dry, seconds):
    """Return how many tests passed, failed and were skipped, and what failed."""
    files, tried, cases = LAWS[name]
    environment = dict(os.environ)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # Each file of kernels has a test that runs the others in the interpreter.
    command += ["-k", "not in_the_interpreter" + (f" and ({cases})" if dry else "")]
    command += ["-n", "0" if dry else str(os.cpu_count())]
    command += [f"tests/{file}" for file in (tried if dry else files)]
    if dry:
        environment |= {"SKSETVALUED_TEST_DEVICE": "cpu"}
        if files == KERNELS:
            environment |= {"TRITON_INTERPRET": "1", "SKSETVALUED_KERNELS": "0"}
    elif files:
        command += ["-m", "slow or not slow"]
    else:
        command += [f"--ignore=tests/{file}" for file in (*KERNELS, *LEFT_OUT)]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with contextlib.suppress(subprocess.TimeoutExpired):  # which leaves no report
            done = subprocess.run(
                [*command, f"--junitxml={report}"],
                timeout=seconds,
                cwd=ROOT,
                env=environment,
                **output,
            )
            if done.returncode:
                print(done.stdout, flush=True)
        counts = read_report(report)
    return {**counts, "seconds": time.monotonic() - start}


def read_report(path):
    """Return the outcomes in a report of pytest; one that is not there is a failure."""
    if not path.exists():
        return {"passed": 0, "skipped": 0, "failed": ["did not end in time"]}
    failed, skipped, total = [], 0, 0
    for case in ElementTree.parse(path).iter("testcase"):
        total += 1
        skipped += case.find("skipped") is not None
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(case.get("name"))
    passed = total - skipped - len(failed)
    failed += ["nothing ran"] if total == skipped else []
    return {"passed": passed, "skipped": skipped, "failed": failed}


def find_contenders(smooth_topk):
    """Return the makers of what is measured, and the names of packages that are absent."""
    makers = {speed.REFERENCE: contenders.differentiate(lambda k: F.cross_entropy)}
    found, absent = contenders.peers(smooth_topk)
    # jaxopt's arrays are of the processor.
    found.pop("jaxopt projection", None)
    makers[DEFAULT] = contenders.differentiate(losses.NoisedMixtureLoss)
    return makers | contenders.ours() | contenders.plain() | found, absent


def measure(makers, cell, device, seconds, rounds):
    """Return the figures of a size, and why contenders are missing."""
    scores, target = speed._data(*cell[:2], device)
    functions, missing = {}, {}
    for name, make in makers.items():
        try:
            functions[name] = make(scores, target, cell[2])
            functions[name]()
        except (RuntimeError, TypeError, ValueError) as error:
            functions.pop(name, None)
            missing[name] = str(error).splitlines()[0][:100]
    timings = measuring.interleaved(functions, rounds, seconds, device)
    measuring.ratios(timings, speed.REFERENCE)
    for name, function in functions.items():
        timings[name]["memory"] = measuring.peak_bytes(function, device) / scores.nbytes
        timings[name]["kernels_ms"] = 1e3 * measuring.kernel_seconds(function, device)
    base = timings[speed.REFERENCE]["kernels_ms"]
    for timing in timings.values():
        timing["kernels_ratio"] = timing["kernels_ms"] / base
    return timings, missing


def trainings(device, dry):
    """Return functions that train and do the same work, in groups by what is trained."""
    n_rows, n_images = (sizes[dry] for sizes in TRAINED.values())
    groups = {
        f"{n_rows:,} rows, {d} features, {n_classes} classes, batches of {batch}, 3 epochs": (
            training.table_fits(n_rows, d, n_classes, batch, device)
        )
        for d, n_classes, batch in training.TABLES
    }
    for functions in groups.values():
        functions["estimator, its default loss"] = partial(
            functions["estimator"], "noised_mixture"
        )
    images = training.convnet_fits(n_images, 256, device, "resnet18")
    estimator = images["estimator"]
    images |= {
        "estimator, noised hinge": lambda: estimator("noised_hinge"),
        "estimator, its default loss": lambda: estimator("noised_mixture"),
        "estimator, bf16": lambda: estimator(precision="bf16"),
        "estimator, noised hinge, bf16": lambda: estimator("noised_hinge", precision="bf16"),
    }
    return groups | {f"resnet18, {n_images:,} images of 32 x 32, an epoch": images}


def measure_training(functions, device, seconds, rounds):
    """Return the figures of trainings that do the same work."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # there is nothing to learn
        timings = measuring.interleaved(functions, rounds, seconds, device)
    return measuring.ratios(timings, "bare loop")


def laws_section(laws):
    """Return the lines about the tests."""
    rows = [
        (name, law["passed"], len(law["failed"]), law["skipped"], f"{law['seconds']:.0f}")
        for name, law in laws.items()
    ]
    failures = [f"* {name}: `{f}`" for name, law in laws.items() for f in law["failed"]]
    lines = measuring.table(["laws", "passed", "failed", "skipped", "seconds"], rows)
    return ["## Laws", "", *lines, *(["Failed:", "", *failures, ""] if failures else [])]


def speed_section(cells):
    """Return the lines with times and memory, a table for each size."""
    lines = ["## Speed and memory", ""]
    for (n_samples, n_classes, k), (timings, missing) in cells.items():
        lines += [f"### {n_samples} x {n_classes}, K = {k}", ""]
        rows = [
            (
                name,
                measuring.short(1e3 * t["wall_ms"]),
                measuring.short(t["wall_ratio"]),
                measuring.short(1e3 * t["kernels_ms"]),
                measuring.short(t["kernels_ratio"]),
                measuring.short(t["memory"]),
            )
            for name, t in timings.items()
        ]
        header = ["loss or operator", "microseconds", "x cross-entropy"]
        header += ["kernels alone", "x cross-entropy", "memory / scores"]
        lines += measuring.table(header, rows)
        lines += [f"* {name} was not measured: {why}" for name, why in missing.items()]
        lines += [""] if missing else []
    return lines


def training_section(trained):
    """Return the lines with the times of training."""
    lines = ["## Training", ""]
    for what, timings in trained.items():
        rows = [
            (name, measuring.short(t["wall_ms"]), measuring.short(t["wall_ratio"]))
            for name, t in timings.items()
        ]
        lines += [f"### {what}", "", *measuring.table(["", "milliseconds", "x bare loop"], rows)]
    return lines


def targets_section(cells):
    """Return the lines that compare the largest size with the targets, if it was measured."""
    timings = cells.get((64, 100_000, 5), ({}, {}))[0]
    rows = []
    for name, most in TARGETS.items():
        if name in timings:
            costs = [timings[name][f"{of}_ratio"] for of in ("kernels", "wall")]
            rows.append((name, *(_verdict(cost, cost <= most) for cost in costs), f"≤ {most}"))
    ours, peer = "noised hinge, 3 draws, small noise", "pytopk, 3 draws"
    if ours in timings and peer in timings:
        times = [timings[peer][key] / timings[ours][key] for key in ("kernels_ms", "wall_ms")]
        met = (_verdict(time, time >= 20) for time in times)
        rows.append((f"{peer}, x {ours}", *met, "≥ 20"))
    if not rows:
        return []
    header = ["64 x 100000, K = 5; x cross-entropy", "kernels alone", "with launches", "target"]
    return ["## Targets", "", *measuring.table(header, rows)]


def _verdict(ratio, met):
    return measuring.short(ratio) + ("" if met else ", **not met**")


def write(page, laws, cells, trained, absent, device):
    """Write the page, of what there is so far."""
    machine = measuring.machine(device)
    versions = ", ".join(f"{name} {v}" for name, v in machine["versions"].items() if v)
    lines = [
        "# On a GPU" if device != "cpu" else "# A dry run on the processor: no figures of a GPU",
        "",
        "Made by `python benchmarks/gpu.py`; not edited.",
        "",
        f"{machine['device']}; {machine['system']}, Python {machine['python']}; {versions}. "
        + (f"Not found, so not measured: {', '.join(absent)}. " if absent else "")
        + "Forward and backward, medians of interleaved runs, on the clock: for small scores that "
        "is the time that it takes to launch the kernels. The sum of their own times comes beside "
        "it. Memory is the peak beyond what was held before.",
        "",
        *laws_section(laws),
        *targets_section(cells),
        *speed_section(cells),
        *training_section(trained),
    ]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(lines).rstrip("\n") + "\n", encoding="utf-8")


def main(argv=None):
    """Run the command line; the exit code tells whether all laws hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dry", action="store_true", help="try the script without a GPU")
    parser.add_argument("--smooth-topk", type=Path, help="checkout of smooth-topk")
    parser.add_argument("--limit", type=float, default=450, help="seconds")
    parser.add_argument("--page", type=Path, help="gpu.md; a dry run writes only where told")
    args = parser.parse_args(argv)
    if not args.dry and not torch.cuda.is_available():
        parser.exit(2, "There is no GPU, so nothing is measured; --dry tries the script.\n")
    device, clock = "cpu" if args.dry else "cuda", Clock(args.limit)
    page = args.page or (None if args.dry else PAGE)
    torch.manual_seed(0)
    makers, absent = find_contenders(args.smooth_topk)
    laws, cells, trained = {}, {}, {}

    def keep(part, name, found):
        """Write what there is, lest the time end all."""
        part[name] = found
        print(f"{name}: {json.dumps(measuring.rounded(found))}", flush=True)
        if page is not None:
            write(page, laws, cells, trained, absent, device)

    for name in LAWS:
        seconds = clock.left() - (1 - MOST_LAWS) * args.limit
        keep(laws, name, run_laws(name, args.dry, max(1.0, seconds)))
    measuring.settle()
    sizes = TINY if args.dry else speed.GRID
    for i, cell in enumerate(sizes):
        seconds = 0.1 if args.dry else clock.left(0.3 / (len(sizes) - i))
        keep(cells, cell, measure(makers, cell, device, seconds, 2 if args.dry else 15))
    groups = trainings(device, args.dry)
    for i, (name, functions) in enumerate(groups.items()):
        seconds = 0.1 if args.dry else clock.left(0.3 / (len(groups) - i))
        rounds = 2 if args.dry else 9
        keep(trained, name, measure_training(functions, device, seconds, rounds))
    return int(any(law["failed"] for law in laws.values()))


if __name__ == "__main__":
    sys.exit(main())
