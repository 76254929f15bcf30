"""Compare the promises of AverageError on long tails, over real scores and real class counts.

    python benchmarks/coverage.py run [--data FOLDER] [--draws 40]
    python benchmarks/coverage.py page

`run` adds what is missing to results/coverage.json.gz, `page` writes coverage.md from it. The data
are not part of the package: softmax outputs of two networks on the test set of CIFAR-100, the
texts of BANKING77, and the counts per class of Places-LT, Pl@ntNet-300K and iNaturalist 2018.
"""

import argparse
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import read_json, write_json
from scipy.stats import t as student
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from sksetvalued.rules import AverageError

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "coverage.json.gz"
PAGE = HERE / "coverage.md"
DATA = HERE.parents[1] / "shared" / "data"
ERROR = 0.1
PER_CLASS = 20
#: Fewest calibration samples of a class: none, or what was collected on purpose.
FLOORS = (0, 12)
TAILS = {
    "Places-LT": "places_lt_train",
    "Pl@ntNet-300K": "plantnet300k_train_sorted_approx",
    "iNaturalist 2018": "inat2018_train_sorted_approx",
}
RULES = {
    "p, micro": {},
    "p/prior, micro": {"objective": "macro"},
    "p, macro": {"coverage": "macro"},
    "p/prior, macro": {"objective": "macro", "coverage": "macro"},
    "class": {"coverage": "class"},
    "class, half interpolated": {"objective": "macro", "coverage": "class", "interpolation": 0.5},
    "class, 0.9 interpolated": {"objective": "macro", "coverage": "class", "interpolation": 0.9},
}
METRICS = ("micro", "macro", "rare", "size")

INTRO = """\
# What is promised on long tails, and what it costs

Written by `python benchmarks/coverage.py page` from `results/coverage.json.gz`.

Scores are real: the softmax of two networks on the test set of CIFAR-100 (10,000 samples of 100
classes), and a logistic regression of word frequencies on that of BANKING77 (3,080 of 77). Tails
are real counts: those of three data sets, read off at as many evenly spaced places as there are
classes, and given to the classes in a new random order in each draw. A draw takes 20 calibration
samples per class on average, classes drawn in these proportions, so that many classes of the tail
have few or none; the scores are brought to the proportions by Bayes' formula. Coverages and sizes
are exact for the population that the samples are drawn from, in percent and classes: micro over
samples, macro over classes, rare over the third of the classes with the smallest counts; sizes are
over samples in the proportions of the tail. error=0.1, so 90 is promised in the column that the
rule is named after; 80 over samples by the interpolated ones. ± is the half-width of a 95 %
Student interval over the draws. "infeasible" counts draws in which the rule returns every class;
"forced" is the average number of classes that are in every set. Where the tail is followed by "at
least 12 samples per class", rarer classes got so many: the promises of macro and class hold all
the same, that of micro does not.
"""

FINDINGS = """\
## What it says

- Drawn as they come, 20 calibration samples per class on average are too few for the macro promise
  on every tail, in all 270 draws: too many classes have few or none, and every class is returned.
  The promise for every class puts half to three quarters of the classes in every set. What remains
  is a promise over samples: ranking p/prior costs 0.4 to 1.0 classes more than p and gives 4 to 55
  points of macro coverage, 7 to 85 in the rarest third. An interpolation of 0.9 promises only 80;
  its macro coverage is 2.6 to 3.9 points above that of p/prior on CIFAR-100, and between 0.8 below
  and 0.2 above on BANKING77.
- With at least 12 samples per class the macro promise is kept with a margin, 96 to 97 for 90: the
  + 1 of each class is much of 12. Its sets are 0.1 to 1.0 classes smaller than those of the
  promise for every class (one interval of nine holds zero), and cover 3 to 4 points more of the
  average class. The promise for every class is closer to what was asked, 93.
- Under the macro promise, ranking p instead of p/prior costs 0.2 to 5.4 classes, at equal macro
  coverage.
- The macro promise says nothing about samples: on BANKING77 their coverage falls to 67 and 69
  on two tails. Look at both.
"""


def class_prior(counts, n_classes):
    """Return the shape of a tail for some number of classes, in falling order."""
    counts = np.sort(counts)[::-1].astype(float)
    at = np.linspace(0, len(counts) - 1, n_classes).round().astype(int)
    return counts[at] / counts[at].sum()


def read_scores(data):
    """Yield the name, probabilities and labels of each model, and its training prior."""
    with np.load(data / "cifar100_test_probs_3models.npz") as file:
        for name in ("densenet_bc_100", "wideresnet_16_4"):
            p = file[f"p_{name}"].astype(float)
            yield f"CIFAR-100, {name}", p, file["y"].astype(int), np.full(100, 0.01)
    frame = pd.read_csv(data / "banking77.csv.gz")
    train, test = frame[frame.split == "train"], frame[frame.split == "test"]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression(C=10, max_iter=300))
    model.fit(train.text, train.label)
    y = np.searchsorted(model.classes_, test.label)
    prior = train.label.value_counts(normalize=True)[model.classes_].to_numpy()
    yield "BANKING77, logistic regression", model.predict_proba(test.text), y, prior


def one_draw(p, y, trained_prior, shape, floor, rng):
    """Return the figures of every rule for one order of the classes and one calibration set."""
    n_classes = p.shape[1]
    prior = rng.permutation(shape)
    scores = p * prior / trained_prior
    scores /= scores.sum(1, keepdims=True)
    members = [np.flatnonzero(y == c) for c in range(n_classes)]
    drawn = np.maximum(rng.multinomial(PER_CLASS * n_classes, prior), floor)
    rows = np.concatenate([rng.choice(m, n) for m, n in zip(members, drawn)])
    rare = np.argsort(prior)[: n_classes // 3]
    figures = {}
    for name, params in RULES.items():
        rule = AverageError(ERROR, prior=prior, **params)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            sets = rule.fit(scores[rows], y[rows]).predict_set(scores)
        hits, sizes = sets[np.arange(len(y)), y], sets.sum(1)
        covered = np.array([hits[m].mean() for m in members])
        size = prior @ [sizes[m].mean() for m in members]
        forced = int(sets.all(0).sum())
        values = (100 * prior @ covered, 100 * covered.mean(), 100 * covered[rare].mean(), size)
        figures[name] = dict(zip(METRICS, (round(float(v), 4) for v in values))) | {
            "forced": forced
        }
    return figures


def run(data, n_draws):
    with np.load(data / "longtail_counts.npz") as file:
        tails = {name: file[key] for name, key in TAILS.items()}
    results = read_json(RESULTS) if RESULTS.exists() else []
    done = {(r["model"], r["tail"]) for r in results}
    for model, p, y, trained_prior in read_scores(data):
        for (name, counts), floor in product(tails.items(), FLOORS):
            tail = f"{name}, at least {floor} samples per class" if floor else name
            if (model, tail) in done:
                continue
            shape = class_prior(counts, p.shape[1])
            rngs = [np.random.default_rng(seed) for seed in range(n_draws)]
            draws = [one_draw(p, y, trained_prior, shape, floor, rng) for rng in rngs]
            result = {"model": model, "tail": tail, "n_classes": p.shape[1], "draws": draws}
            results.append(result)
            write_json(RESULTS, results)
            print(model, tail, flush=True)


def interval(values):
    """Return the mean and the half-width of its 95 % Student interval."""
    values = np.asarray(values, dtype=float)
    if len(values) < 2:
        return values.mean() if len(values) else np.nan, np.nan
    return values.mean(), student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(
        values
    ) ** 0.5


def table(result):
    """Return the lines of the table of one model and tail."""
    n_classes, draws = result["n_classes"], result["draws"]
    lines = ["| ranked, promised | micro | macro | rare | size | infeasible | forced |"]
    lines.append("|---|---|---|---|---|---|---|")
    for name in RULES:
        feasible = [d[name] for d in draws if d[name]["forced"] < n_classes]
        cells = ["{:.1f} ± {:.1f}".format(*interval([f[m] for f in feasible])) for m in METRICS]
        cells = cells if feasible else ["-"] * 4
        forced = np.mean([d[name]["forced"] for d in draws])
        missing = len(draws) - len(feasible)
        lines.append(f"| {name} | {' | '.join(cells)} | {missing}/{len(draws)} | {forced:.1f} |")
    return lines


PAIRS = [
    ("p/prior, macro", "class", "macro"),
    ("p/prior, macro", "p, macro", "macro"),
    ("p/prior, micro", "p, micro", "micro"),
]


def differences(results):
    """Return a table of paired differences in size and coverage of rules of equal promise."""
    lines = ["| model, tail | " + " | ".join(f"{a} - {b}" for a, b, _ in PAIRS) + " |"]
    lines.append("|---|" + "---|" * len(PAIRS))
    for result in results:
        cells = []
        for a, b, _ in PAIRS:
            n = result["n_classes"]
            both = [d for d in result["draws"] if max(d[a]["forced"], d[b]["forced"]) < n]
            if not both:
                cells.append("infeasible")
                continue
            size, macro, rare = (
                "{:+.1f} ± {:.1f}".format(*interval([d[a][m] - d[b][m] for d in both]))
                for m in ("size", "macro", "rare")
            )
            cells.append(f"size {size}, macro {macro}, rare {rare}")
        lines.append(f"| {result['model']}, {result['tail']} | {' | '.join(cells)} |")
    return lines


def page():
    results = read_json(RESULTS)
    parts = [INTRO, FINDINGS]
    parts += ["## Rules of equal promise, paired by draw\n", *differences(results), ""]
    for result in results:
        parts += [f"## {result['model']}, {result['tail']}\n", *table(result), ""]
    PAGE.write_text("\n".join(parts).rstrip() + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("command", choices=["run", "page"])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--draws", type=int, default=40)
    args = parser.parse_args()
    page() if args.command == "page" else run(args.data, args.draws)
