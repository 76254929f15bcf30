"""Check and measure the package on a GPU, by one command, and write gpu.md.

    python benchmarks/gpu.py [--smooth-topk CHECKOUT] [--limit SECONDS]
    python benchmarks/gpu.py --dry [--page PAGE]

It runs the laws of the kernels, losses and estimators on CUDA, measures the losses beside
cross-entropy, pytopk and smooth-topk, and ends within the limit. Without a GPU it refuses to
write figures. With --dry it does the same with a few laws in Triton's interpreter and tiny cells
on the processor, which shows that the script works, and writes no page of figures.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

import contenders
import measuring
import speed
import torch
from torch.nn import functional as F

ROOT = Path(__file__).resolve().parents[1]
PAGE = measuring.RESULTS.parent / "gpu.md"
#: What is run, and the cases of it that a dry run takes.
LAWS = {
    "kernel of the noised losses": ("test_triton.py", "loss_and_gradient or k_up_to"),
    "kernels of the smoothed hinge": ("test_smoothed_triton.py", "digits or rows_may"),
    "kernels of the projection": ("test_projection_triton.py", "kernels_are_used or exact"),
    "losses and estimators": ("test_devices.py", "seed or scaled or (losses and hinge)"),
    "images": ("test_inputs_images.py", "fits_moves or bytes_stay"),
}
TINY = ((4, 20, 2),)
MOST_LAWS = 0.6  # of the time
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


def run_laws(file, cases, dry, seconds):
    """Return how many tests of a file passed, failed and were skipped, and what failed."""
    environment = dict(os.environ)
    # Each file has a test that runs the others in the interpreter; here they run themselves.
    chosen = "not in_the_interpreter" + (f" and ({cases})" if dry else "")
    if dry:
        environment |= {"SKSETVALUED_TEST_DEVICE": "cpu"}
        if "triton" in file:
            environment |= {"TRITON_INTERPRET": "1", "SKSETVALUED_KERNELS": "0"}
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", f"tests/{file}", "-q", "-k", chosen]
        command += ["-m", "not slow" if dry else "slow or not slow", "-p", "no:cacheprovider"]
        command += ["-n", "0" if dry else str(min(4, os.cpu_count())), f"--junitxml={report}"]
        quiet = {"cwd": ROOT, "env": environment, "stdout": subprocess.DEVNULL}
        with contextlib.suppress(subprocess.TimeoutExpired):  # which leaves no report
            subprocess.run(command, timeout=seconds, **quiet)
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
    return timings, missing


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
                measuring.short(t["memory"]),
            )
            for name, t in timings.items()
        ]
        header = ["loss or operator", "microseconds", "x cross-entropy", "memory / scores"]
        lines += measuring.table(header, rows)
        lines += [f"* {name} was not measured: {why}" for name, why in missing.items()]
        lines += [""] if missing else []
    return lines


def targets_section(cells):
    """Return the lines that compare the largest size with the targets, if it was measured."""
    timings = cells.get((64, 100_000, 5), ({}, {}))[0]
    rows = [
        (name, measuring.short(cost), f"≤ {most}", "met" if cost <= most else "**not met**")
        for name, most in TARGETS.items()
        if (cost := timings.get(name, {}).get("wall_ratio")) is not None
    ]
    ours, peer = "noised hinge, 3 draws, small noise", "pytopk, 3 draws"
    if ours in timings and peer in timings:
        times = timings[peer]["wall_ms"] / timings[ours]["wall_ms"]
        verdict = "met" if times >= 20 else "**not met**"
        rows.append((f"{peer} / {ours}", measuring.short(times), "≥ 20", verdict))
    if not rows:
        return []
    header = ["64 x 100000, K = 5", "x cross-entropy", "target", ""]
    return ["## Targets", "", *measuring.table(header, rows)]


def write(page, laws, cells, absent, device):
    """Write the page."""
    machine = measuring.machine(device)
    versions = ", ".join(f"{name} {v}" for name, v in machine["versions"].items() if v)
    lines = [
        "# On a GPU" if device != "cpu" else "# A dry run on the processor: no figures of a GPU",
        "",
        "Made by `python benchmarks/gpu.py`; not edited.",
        "",
        f"{machine['device']}; {machine['system']}, Python {machine['python']}; {versions}. "
        f"Not found, so not measured: {', '.join(absent) or 'none'}. Forward and backward, "
        "medians of interleaved runs; memory is the peak beyond what was held before.",
        "",
        *laws_section(laws),
        *targets_section(cells),
        *speed_section(cells),
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
    laws = {}
    for i, (name, (file, cases)) in enumerate(LAWS.items()):
        seconds = clock.left() - (1 - MOST_LAWS) * args.limit
        laws[name] = run_laws(file, cases, args.dry, max(1.0, seconds / (len(LAWS) - i) * 2))
        print(f"{name}: {laws[name]['passed']} passed, {laws[name]['failed']} failed", flush=True)
    measuring.settle()
    torch.manual_seed(0)
    makers, absent = find_contenders(args.smooth_topk)
    cells, sizes = {}, TINY if args.dry else speed.GRID
    for i, cell in enumerate(sizes):
        seconds = 0.1 if args.dry else clock.left(0.5 / (len(sizes) - i))
        cells[cell] = measure(makers, cell, device, seconds, 2 if args.dry else 15)
        print("x".join(map(str, cell)), "measured", flush=True)
    page = args.page or (None if args.dry else PAGE)
    if page is not None:
        write(page, laws, cells, absent, device)
    return int(any(law["failed"] for law in laws.values()))


if __name__ == "__main__":
    sys.exit(main())
