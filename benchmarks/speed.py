"""Measure the losses beside cross-entropy and beside other packages: time and memory.

    python benchmarks/speed.py run [--smooth-topk CHECKOUT] [--device cuda]
    python benchmarks/speed.py report

`run` measures forward and backward and writes results/speed.json.xz; `report` makes speed.md and
its plots from it. All functions of a cell take turns in one process, on one thread, and medians
are compared. The time is the CPU time of the process, which others on the machine disturb little;
the wall time is kept beside it.

pytopk, entmax, jax with jaxopt, and smooth-topk (a git checkout of oval-group/smooth-topk, which
needs the package `future`) are measured where they are found. For a single thread in jax set
XLA_FLAGS="--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1".
"""

import argparse
from pathlib import Path

import contenders
import measuring
import speed_report
import torch
from torch.nn import functional as F

GRID = ((64, 100, 5), (256, 1000, 5), (256, 1000, 50), (64, 10_000, 5), (64, 100_000, 5))
GROWTH = ((64, 1000, 5), (256, 1000, 1), (256, 1000, 10), (256, 1000, 20))
DRAWS = (1, 3, 10, 30, 50)
REFERENCE = "cross-entropy"
RESULTS = measuring.RESULTS / "speed.json.xz"
PAGE = measuring.RESULTS.parent / "speed.md"


def _cell(text):
    """Parse "256x1000x5": samples, classes, k."""
    n_samples, n_classes, k = (int(part) for part in text.split("x"))
    return n_samples, n_classes, k


def _data(n_samples, n_classes, device):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(n_samples, n_classes, generator=generator)
    target = torch.randint(n_classes, (n_samples,), generator=generator)
    return scores.to(device).requires_grad_(), target.to(device)


def measure_cell(makers, cell, args):
    """Return times, ratios to cross-entropy, and memory in units of the scores."""
    n_samples, n_classes, k = cell
    scores, target = _data(n_samples, n_classes, args.device)
    functions = {name: make(scores, target, k) for name, make in makers.items()}
    timings = measuring.interleaved(functions, args.rounds, args.seconds, args.device)
    measuring.ratios(timings, REFERENCE)
    for name, function in functions.items():
        peak = measuring.peak_bytes(function, args.device)
        # jax does not use torch's allocator.
        timings[name]["memory"] = peak / scores.nbytes if not name.startswith("jax") else None
    return {"n_samples": n_samples, "n_classes": n_classes, "k": k, "contenders": timings}


def measure_draws(makers, cell, args):
    """Return the cost of the noised losses against the number of draws."""
    rows = []
    for n_draws in args.draws:
        chosen = {
            REFERENCE: makers[REFERENCE],
            "noised hinge, small noise": contenders.noised(n_draws, contenders.EPSILON["small"]),
            "noised hinge, large noise": contenders.noised(n_draws, contenders.EPSILON["large"]),
        }
        if "pytopk, 3 draws" in makers:
            chosen["pytopk"] = contenders.pytopk(n_draws)
        rows.append({"n_draws": n_draws, **measure_cell(chosen, cell, args)})
        print(f"{n_draws} draws done", flush=True)
    return rows


def run(args):
    """Measure all cells and write the results."""
    measuring.settle()
    torch.manual_seed(0)
    found, absent = contenders.peers(args.smooth_topk)
    makers = {REFERENCE: contenders.differentiate(lambda k: F.cross_entropy)}
    makers |= {**contenders.ours(), **contenders.plain(), **found}
    results = measuring.machine(args.device)
    results |= {"absent": absent, "epsilon": contenders.EPSILON, "tau": contenders.TAU}
    results["cells"] = []
    for cell in args.cells:
        results["cells"].append(measure_cell(makers, cell, args))
        print("x".join(map(str, cell)), "done", flush=True)
    results["draws"] = measure_draws(makers, args.draws_cell, args)
    measuring.write_json(args.results, measuring.rounded(results))


def main(argv=None):
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("run", "report"))
    parser.add_argument("--smooth-topk", type=Path, help="checkout of smooth-topk")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--cells", type=_cell, nargs="+", default=GRID + GROWTH)
    parser.add_argument("--draws", type=int, nargs="+", default=DRAWS)
    parser.add_argument("--draws-cell", type=_cell, default=(256, 1000, 5))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=20.0, help="for a cell, about")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args(argv)
    if args.action == "run":
        run(args)
    else:
        speed_report.write(args.results, args.page)


if __name__ == "__main__":
    main()
