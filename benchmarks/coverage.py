"""Compare the promises of AverageError on long tails, over real scores and real class counts.

    python benchmarks/coverage.py [--data FOLDER] [--draws 15]
    python benchmarks/coverage_report.py --page docs/measured/coverage.md

The first adds what is missing to results/coverage.json.xz, from which the other writes a page of
the documentation. Rules of others are in rule_contenders.py. The data are not part of the
package: softmax outputs of two networks on the test set of CIFAR-100, the texts of BANKING77, and
the counts per class of Places-LT, Pl@ntNet-300K and iNaturalist 2018.
"""

import argparse
import warnings
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from measuring import is_there, read_json, write_json
from rule_contenders import backward, cardinality_aware, clustered, rank_calibrated
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from sksetvalued.rules import AverageError, AverageK, TopK, cost_scores

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "coverage.json.xz"
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
SIZE = 2


def coverage_rule(**params):
    """Return what makes sets by AverageError."""

    def sets(p, y, new, prior, seed):
        return AverageError(ERROR, prior=prior, **params).fit(p, y).predict_set(new), {}

    return sets


def size_rule(rule):
    """Return what makes sets by a rule for sizes."""

    def sets(p, y, new, prior, seed):
        own = rule.set_params(prior=prior)
        return own.fit(p).predict_set(new), {}

    return sets


def dear_rule(slope):
    """Return what makes sets by AverageError that pay extra for a second class."""

    def sets(p, y, new, prior, seed):
        size = np.arange(1, p.shape[1] + 1)
        rule = AverageError(ERROR).fit(cost_scores(p, (size > 1) + slope * size), y)
        return rule.predict_set(cost_scores(new, (size > 1) + slope * size)), {}

    return sets


def backward_rule(p, y, new, prior, seed):
    sets, promised = backward(p, y, new, SIZE)
    return sets, {"promised": promised}


def cardinality_rule(p, y, new, prior, seed):
    """Return its sets, and those of average-k of the size that it has on the calibration."""
    sets, size = cardinality_aware(p, y, new, SIZE)
    return sets, {"rival": AverageK(size).fit(p).predict_set(new)}


RULES = {
    "p, micro": coverage_rule(),
    "p/prior, micro": coverage_rule(objective="macro"),
    "p, macro": coverage_rule(coverage="macro"),
    "p/prior, macro": coverage_rule(objective="macro", coverage="macro"),
    "class": coverage_rule(coverage="class"),
    "class, half interpolated": coverage_rule(
        objective="macro", coverage="class", interpolation=0.5
    ),
    "class, 0.9 interpolated": coverage_rule(
        objective="macro", coverage="class", interpolation=0.9
    ),
    "clustered": lambda p, y, new, prior, seed: (clustered(p, y, new, ERROR, seed), {}),
    "RC3P": lambda p, y, new, prior, seed: (rank_calibrated(p, y, new, ERROR), {}),
}
SIZES = {
    "top-k": size_rule(TopK(SIZE)),
    "average-k": size_rule(AverageK(SIZE)),
    "average-k, p/prior": size_rule(AverageK(SIZE, objective="macro")),
    "backward": backward_rule,
    "cardinality": cardinality_rule,
}
DEAR = {
    "n": coverage_rule(),
    "1 (n > 1) + 0.3 n": dear_rule(0.3),
    "1 (n > 1) + 0.03 n": dear_rule(0.03),
}
EVERY = RULES | SIZES | DEAR
METRICS = ("micro", "macro", "rare", "size")


def class_prior(counts, n_classes):
    """Return the shape of a tail for some number of classes, in falling order."""
    counts = np.sort(counts)[::-1].astype(float)
    at = np.linspace(0, len(counts) - 1, n_classes).round().astype(int)
    return counts[at] / counts[at].sum()


def read_scores(data):
    """Yield the name, probabilities and labels of each model, and its training prior."""
    outputs, texts = data / "cifar100_test_probs_3models.npz", data / "banking77.csv.gz"
    if is_there(outputs, "CIFAR-100"):
        with np.load(outputs) as file:
            for name in ("densenet_bc_100", "wideresnet_16_4"):
                p = file[f"p_{name}"].astype(float)
                yield f"CIFAR-100, {name}", p, file["y"].astype(int), np.full(100, 0.01)
    if not is_there(texts, "BANKING77"):
        return
    frame = pd.read_csv(texts)
    train, test = frame[frame.split == "train"], frame[frame.split == "test"]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression(C=10, max_iter=300))
    model.fit(train.text, train.label)
    y = np.searchsorted(model.classes_, test.label)
    prior = train.label.value_counts(normalize=True)[model.classes_].to_numpy()
    yield "BANKING77, logistic regression", model.predict_proba(test.text), y, prior


def one_draw(p, y, trained_prior, shape, floor, seed, wanted):
    """Return the figures of some rules for one order of the classes and one calibration set."""
    n_classes, rng = p.shape[1], np.random.default_rng(seed)
    prior = rng.permutation(shape)
    scores = p * prior / trained_prior
    scores /= scores.sum(1, keepdims=True)
    members = [np.flatnonzero(y == c) for c in range(n_classes)]
    drawn = np.maximum(rng.multinomial(PER_CLASS * n_classes, prior), floor)
    rows = np.concatenate([rng.choice(m, n) for m, n in zip(members, drawn)])
    figures = {}
    for name in wanted:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            sets, more = EVERY[name](scores[rows], y[rows], scores, prior, seed)
        figures[name] = figures_of(sets, y, members, prior)
        if "rival" in more:
            figures[f"{name}, rival"] = figures_of(more["rival"], y, members, prior)
        if "promised" in more:
            promised = [more["promised"][m].mean() for m in members]
            figures[name]["promised"] = round(float(100 * prior @ promised), 2)
    return figures


def figures_of(sets, y, members, prior):
    """Return coverages in percent, sizes, and the share of single classes, of the population."""
    rare = np.argsort(prior)[: len(prior) // 3]
    hits, sizes = sets[np.arange(len(y)), y], sets.sum(1)
    covered = np.array([hits[m].mean() for m in members])
    size, single = (prior @ [v[m].mean() for m in members] for v in (sizes, sizes == 1))
    values = (100 * prior @ covered, 100 * covered.mean(), 100 * covered[rare].mean(), size)
    figures = dict(zip(METRICS, values)) | {"single": 100 * single}
    figures = {
        key: round(float(value), 3 if key == "size" else 2) for key, value in figures.items()
    }
    return figures | {"forced": int(sets.all(0).sum())}


def run(data, n_draws):
    """Add what is missing: draws, and rules of the draws that there are."""
    source = data / "longtail_counts.npz"
    if not is_there(source, "everything"):
        return
    with np.load(source) as file:
        tails = {name: file[key] for name, key in TAILS.items()}
    results = read_json(RESULTS) if RESULTS.exists() else []
    known = {(r["model"], r["tail"]): r for r in results}
    for model, p, y, trained_prior in read_scores(data):
        for (name, counts), floor in product(tails.items(), FLOORS):
            tail = f"{name}, at least {floor} samples per class" if floor else name
            if (model, tail) not in known:
                new = {"model": model, "tail": tail, "n_classes": p.shape[1], "draws": []}
                known[model, tail] = new
                results.append(new)
            draws = known[model, tail]["draws"]
            draws += [{} for _ in range(n_draws - len(draws))]
            shape = class_prior(counts, p.shape[1])
            for seed, draw in enumerate(draws[:n_draws]):
                missing = [rule for rule in EVERY if rule not in draw]
                draw |= one_draw(p, y, trained_prior, shape, floor, seed, missing)
            write_json(RESULTS, results)
            print(model, tail, flush=True)


def main(argv=None):
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--draws", type=int, default=15)
    args = parser.parse_args(argv)
    run(args.data, args.draws)


if __name__ == "__main__":
    main()
