"""Average-k threshold of scores that arrive in chunks: time and memory against a full sort.

Prints ratios and keeps them in ``benchmarks/results/average_k_threshold.json``. The ratios are
medians of interleaved runs in one process; the peak memory is that of one pass over all samples,
chunk included, as traced by Python.

    python benchmarks/average_k_threshold.py --n-samples 1000000 --n-classes 1000
"""

import argparse
import json
import time
import tracemalloc
from pathlib import Path
from statistics import median

import numpy as np

from sksetvalued.rules import AverageK

RESULTS = Path(__file__).parent / "results" / "average_k_threshold.json"


def chunks(n_samples, n_classes, size, dtype):
    """Yield log-probabilities, chunk by chunk, the same at each call."""
    for i in range(n_samples // size):
        rng = np.random.default_rng(i)
        scores = 2 * rng.standard_normal((size, n_classes), dtype=dtype)
        scores -= np.log(np.exp(scores).sum(1, keepdims=True))
        yield scores


def stream(parts, k, n_samples):
    """Return the threshold and the seconds spent, without those that making the scores takes."""
    rule, spent = AverageK(k, log_scores=True), 0.0
    for scores in parts:
        start = time.perf_counter()
        rule.partial_fit(scores, n_samples=n_samples)
        spent += time.perf_counter() - start
    return rule.threshold_, spent


def sort_all(parts, k):
    """Return the threshold of a full sort, and the seconds spent."""
    start = time.perf_counter()
    scores = np.concatenate(parts)
    flat = np.sort(scores, axis=None)
    lower = flat[len(flat) - k * len(scores) - 1]
    upper = flat[np.searchsorted(flat, lower, side="right")]
    return (float(upper) + float(lower)) / 2, time.perf_counter() - start


def compare(args, k, dtype):
    """Return time ratios on the samples that a sort can hold, and the memory on all."""
    parts = list(chunks(args.n_compared, args.n_classes, args.chunk, dtype))
    ours, theirs = [], []
    for _ in range(args.repeats):
        threshold, seconds = stream(parts, k, args.n_compared)
        ours.append(seconds)
        sorted_threshold, seconds = sort_all(parts, k)
        theirs.append(seconds)
        if threshold != sorted_threshold:
            raise RuntimeError(f"thresholds differ: {threshold} and {sorted_threshold}")
    del parts
    tracemalloc.start()
    _, seconds = stream(
        chunks(args.n_samples, args.n_classes, args.chunk, dtype), k, args.n_samples
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "k": k,
        "dtype": dtype.__name__,
        "sort_over_stream": median(theirs) / median(ours),
        "n_compared": args.n_compared,
        "n_samples": args.n_samples,
        "n_classes": args.n_classes,
        "seconds_on_all": seconds,
        "peak_mb": peak / 1e6,
        "all_scores_mb": args.n_samples * args.n_classes * np.dtype(dtype).itemsize / 1e6,
    }


def main(argv=None):
    """Run the comparison for a few sizes and number formats."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n-samples", type=int, default=1_000_000)
    parser.add_argument("--n-compared", type=int, default=100_000)
    parser.add_argument("--n-classes", type=int, default=1000)
    parser.add_argument("--chunk", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args(argv)
    rows = []
    for k, dtype in ((5, np.float32), (20, np.float32), (5, np.float64)):
        rows.append(compare(args, k, dtype))
        print(
            "k={k:>2} {dtype}: a full sort takes {sort_over_stream:.1f}x the time on "
            "{n_compared} x {n_classes}; {n_samples} x {n_classes} in {seconds_on_all:.1f} s and "
            "{peak_mb:.0f} MB (the scores: {all_scores_mb:.0f} MB)".format(**rows[-1])
        )
    args.results.parent.mkdir(exist_ok=True)
    args.results.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
