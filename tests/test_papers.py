"""The runner of the paper protocols: nothing lost, nothing repeated, the same budget for all."""

import dataclasses
import itertools
import json
import lzma
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from sksetvalued import AverageKClassifier

ROOT = Path(__file__).resolve().parents[1]
if not (ROOT / "benchmarks" / "papers").is_dir():
    pytest.skip("the benchmarks are not part of an installed package", allow_module_level=True)

SEEDS = (0, 1, 2)


@pytest.fixture(autouse=True)
def _root_path(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)


class Killed(Exception):
    """What stands for a kill."""


def coverage(task):
    """Return a made-up coverage: known, different for each task, best at weight decay 1."""
    params = task["params"]
    height = {"cross_entropy": 0.5, "two_head": 0.6}[task["contender"]]
    return height + 0.1 * params["weight_decay"] + params["lr"] + 0.001 * task["seed"] ** 2


def record_of(task):
    cells = [{"coverage": coverage(task), "size": float(k)} for _, k in task["cells"]]
    return {"task": task, "seconds": 0.0, "top_1": 0.0, "cells": cells}


def runs_until(n_runs):
    """Return a function that does the tasks in no time, and is killed at the end of its runs."""
    counter = itertools.count()

    def run(experiment, task, folder):
        if next(counter) >= n_runs:
            raise Killed
        return record_of(task)

    return run


@pytest.fixture
def experiment():
    from benchmarks.papers.experiment import Contender, Experiment

    return Experiment(
        title="Nothing",
        data={"name": "synthetic"},
        estimator="average_k",
        contenders={
            "cross_entropy": Contender({"loss": "cross_entropy"}, uses_k=False),
            "two_head": Contender({"loss": "two_head"}, rules=("average_k_sigmoid",)),
        },
        ks=(1.5, 2),
        rules=("average_k", "top_k_of_average_k"),
        grid={"lr": [1e-3, 1e-2], "weight_decay": [0.0, 1.0]},
        budget=4,
        tuning_seeds=(7,),
        seeds=SEEDS,
    )


@pytest.fixture
def finished_file(experiment, tmp_path):
    from benchmarks.papers.runner import run_experiment

    path = tmp_path / "whole.jsonl"
    run_experiment(experiment, path, None, run=runs_until(np.inf))
    return path


def test_a_run_killed_after_any_fit_resumes_without_loss_or_repetition(
    experiment, finished_file, tmp_path
):
    from benchmarks.papers.runner import run_experiment
    from benchmarks.papers.store import ResultFile

    whole = ResultFile(finished_file).records()
    assert len(whole) == len(finished_file.read_bytes().splitlines())
    for n_runs in range(len(whole)):
        path = tmp_path / f"{n_runs}.jsonl"
        with pytest.raises(Killed):
            run_experiment(experiment, path, None, run=runs_until(n_runs))
        # Exactly as many runs are left as the kill left.
        run_experiment(experiment, path, None, run=runs_until(len(whole) - n_runs))
        assert path.read_bytes() == finished_file.read_bytes()


def test_a_line_cut_at_any_byte_is_ignored_and_replaced(tmp_path):
    from benchmarks.papers.store import ResultFile

    path = tmp_path / "records.jsonl"
    records = [{"task": {"n": n, "text": "±\u2028"}, "seconds": 1.5} for n in range(2)]
    for record in records:
        ResultFile(path).append(record)
    content = path.read_bytes()
    first = content.index(b"\n") + 1
    for size in range(first, len(content)):
        path.write_bytes(content[:size])
        assert list(ResultFile(path).records().values()) == records[:1]
        ResultFile(path).append(records[1])
        assert path.read_bytes() == content


def test_compressed_and_plain_records_are_read_as_one_also_after_a_kill(
    experiment, finished_file, monkeypatch
):
    from benchmarks.papers.runner import compress_finished
    from benchmarks.papers.store import ResultFile

    results, plain = ResultFile(finished_file), finished_file.read_bytes()
    whole = results.records()
    changed = dataclasses.replace(experiment, seeds=(*SEEDS, 3))
    compress_finished({"whole": changed}, finished_file.parent)
    assert not results.packed.exists()
    compress_finished({"whole": experiment}, finished_file.parent)
    assert not finished_file.exists()
    assert lzma.decompress(results.packed.read_bytes()) == plain
    assert list(results.records().items()) == list(whole.items())

    # Lines in both files are what a kill leaves that came before the plain ones were removed.
    finished_file.write_bytes(plain[plain.index(b"\n") + 1 :])
    added = {"task": {"n": 1}}
    results.append(added)
    assert list(results.records().values()) == [*whole.values(), added]
    results.compress()
    lines = lzma.decompress(results.packed.read_bytes())
    assert lines.count(b"\n") == len(whole) + 1

    monkeypatch.setattr("time.time", lambda: 0.0)
    later = ResultFile(finished_file.with_name("later.jsonl"))
    later.path.write_bytes(lines)
    later.compress()
    assert later.packed.read_bytes() == results.packed.read_bytes(), "a time or name is inside"


def test_damage_before_the_last_line_and_repetitions_are_errors(tmp_path):
    from benchmarks.papers.store import ResultFile

    path = tmp_path / "records.jsonl"
    line = json.dumps({"task": {"n": 1}}) + "\n"
    path.write_text("{broken\n" + line)
    with pytest.raises(ValueError, match="line 1 .* remove it"):
        ResultFile(path).records()
    path.write_text(line + line)
    with pytest.raises(ValueError, match="line 2 .* repeats"):
        ResultFile(path).records()


def test_nothing_is_run_twice_and_a_changed_protocol_is_another_task(experiment, finished_file):
    from benchmarks.papers.runner import run_experiment
    from benchmarks.papers.store import ResultFile, unfinished

    run_experiment(experiment, finished_file, None, run=runs_until(0))
    changed = dataclasses.replace(experiment, fixed={"max_epochs": 3})
    tasks, records = changed.tuning_tasks(), ResultFile(finished_file).records()
    assert unfinished(tasks, records) == tasks


def test_the_best_validation_coverage_is_tested_and_only_where_it_was_chosen(
    experiment, finished_file
):
    from benchmarks.papers.runner import finished
    from benchmarks.papers.store import ResultFile

    tuning, chosen, tests = finished(experiment, ResultFile(finished_file).records())
    assert all(
        params["weight_decay"] == 1 and params["lr"] == 1e-2 for _, params in chosen.values()
    )
    assert {record["task"]["seed"] for record in tuning} == {7}
    cells = {(r["task"]["contender"], *cell) for r in tests for cell in r["task"]["cells"]}
    assert cells == set(chosen)
    assert len(tests) == len(SEEDS) * 3
    assert ("cross_entropy", "top_k_of_average_k", 1.5) not in cells


def test_every_contender_of_every_experiment_has_the_same_budget():
    from benchmarks.papers.configs import EXPERIMENTS

    for experiment in EXPERIMENTS.values():
        assert not set(experiment.seeds) & set(experiment.tuning_seeds)
        assert len(experiment.seeds) >= 3
        for name, contender in experiment.contenders.items():
            settings = {json.dumps(s, sort_keys=True) for s in experiment.configurations(name)}
            assert len(settings) == (experiment.budget if contender.grid is not None else 1)


def test_training_values_are_searched_whole_and_without_a_test():
    from benchmarks.papers.configs import EXPERIMENTS, IMAGE_TRAINING, TRAINING_VALUES

    used = {seed for e in EXPERIMENTS.values() for seed in (*e.seeds, *e.tuning_seeds)}
    for experiment in (TRAINING_VALUES | IMAGE_TRAINING).values():
        assert not experiment.seeds
        assert not used & set(experiment.tuning_seeds)
        tasks = experiment.tuning_tasks()
        settings = {json.dumps([t["params"], t["seed"]], sort_keys=True) for t in tasks}
        assert len(settings) == len(tasks)
    assert len(TRAINING_VALUES["training_texts"].tuning_tasks()) == 3 * 3 + 2 * 2 * 2 + 2


def test_the_table_of_training_values_says_how_far_each_is_behind():
    from benchmarks.papers.tables import training_table

    constant, cosine = ("none", 0.1, 1.0), ("cosine", 0.1, 1.0)
    coverages = {
        "a": {constant: 51.0, cosine: 55.0},
        "b": {cosine: 69.0, constant: 70.0},
        "c": {cosine: 10.0},
    }
    _, _, *lines, _ = training_table(coverages, ("schedule", "lr", "decay"))
    assert lines == [
        "| cosine | 0.1 | 1.0 | **55.0** | 69.0 | **10.0** | 0.5 | 1.0 |",
        "| none | 0.1 | 1.0 | 51.0 | **70.0** |  | 2.0 | 4.0 |",
    ]


def test_no_fit_follows_the_defaults_of_the_estimators_after_it_was_recorded():
    from benchmarks.papers.configs import EXPERIMENTS
    from benchmarks.papers.measure import UNLESS_SEARCHED, build

    experiment = EXPERIMENTS["average_k_banking77"]
    task = next(t for t in experiment.tuning_tasks() if t["contender"] == "cross_entropy")
    params = build(experiment, task).get_params()
    assert UNLESS_SEARCHED | task["params"] == {
        name: params[name] for name in UNLESS_SEARCHED | task["params"]
    }
    former = task | {"contender": "former default", "params": {}}
    recorded = {"lr": 3e-3, "lr_schedule": "cosine", "weight_decay": 0.1, "max_epochs": 50}
    params = build(experiment, former).get_params()
    assert recorded == {name: params[name] for name in recorded}
    as_it_is = build(experiment, former | {"contender": "default"})
    own = {"k": as_it_is.k, "random_state": task["seed"], "calibration_fraction": None}
    assert as_it_is.get_params() == AverageKClassifier(**own).get_params()


def test_every_task_of_every_experiment_asks_for_an_estimator_that_exists():
    from benchmarks.papers.configs import EXPERIMENTS, IMAGE_TRAINING, TRAINING_VALUES, TRIALS
    from benchmarks.papers.measure import RULES, build

    for experiment in (EXPERIMENTS | TRAINING_VALUES | IMAGE_TRAINING | TRIALS).values():
        for task in experiment.tuning_tasks():
            build(experiment, task)._validate_params()
            assert all(rule in RULES for rule, _ in task["cells"])


def test_differences_are_paired_student_intervals_in_percent(experiment, finished_file):
    from benchmarks.papers.runner import finished
    from benchmarks.papers.statistics import Measurements
    from benchmarks.papers.store import ResultFile

    tests = finished(experiment, ResultFile(finished_file).records())[2]
    rng = np.random.default_rng(0)
    for record in tests:
        for cell in record["cells"]:
            cell["coverage"] = rng.random()
    m = Measurements(experiment, tests, 3)
    left, right = ("two_head", "average_k"), ("cross_entropy", "average_k")
    mean, half_width = m.difference(left, right, 2)
    gaps = m.values(*left, 2) - m.values(*right, 2)
    expected = stats.ttest_1samp(gaps, 0).confidence_interval(0.95)
    np.testing.assert_allclose([mean - half_width, mean + half_width], expected)
    at_once = dataclasses.replace(experiment, simultaneous=True)
    # One contender beside the reference, two set sizes, two rules and top-1.
    _, wide = Measurements(at_once, tests, 3).difference(left, right, 2)
    expected = stats.ttest_1samp(gaps, 0).confidence_interval(1 - 0.05 / 6)
    np.testing.assert_allclose([mean - wide, mean + wide], expected)
    partial = [r for r in tests if r["task"]["seed"] != 1 or r["task"]["k"] is None]
    assert Measurements(experiment, partial, 3).seeds == [0, 2]


def test_verdicts_say_for_each_k_whether_the_interval_bears_the_claim_out():
    from benchmarks.papers.claims import Claim
    from benchmarks.papers.statistics import BETTER, LEVEL, WORSE, verdict

    seen = {1: verdict(0.3, 0.2), 2: verdict(0.1, 0.2), 5: verdict(-0.3, 0.2)}
    assert seen == {1: BETTER, 2: LEVEL, 5: WORSE}

    def judge(expected):
        return Claim("", "", "", ("a", "b"), ("c", "d"), expected).judge(seen)

    assert judge(BETTER) == "holds at K = 1; not seen at K = 2; the contrary (worse) at K = 5"
    assert judge(WORSE) == "holds at K = 5; not seen at K = 2; the contrary (better) at K = 1"
    assert judge(LEVEL).startswith("no difference seen, as claimed at K = 2; the contrary")
    assert judge(None) == "better at K = 1; worse at K = 5; no difference seen at K = 2"
    assert verdict(1.0, float("nan")) == "one seed only"


def test_a_contender_without_a_choice_is_tested_without_a_search(experiment, tmp_path):
    from benchmarks.papers.experiment import Contender
    from benchmarks.papers.runner import run_experiment
    from benchmarks.papers.store import ResultFile

    fixed = {"lr": 0.5, "weight_decay": 0.0}
    searched = Contender({"loss": "cross_entropy"}, uses_k=False)
    untuned = Contender({"loss": "two_head"} | fixed, grid=None)
    contenders = {"cross_entropy": searched, "two_head": untuned}
    changed = dataclasses.replace(experiment, contenders=contenders)
    path = tmp_path / "untuned.jsonl"
    run_experiment(changed, path, None, run=runs_until(np.inf))
    tasks = [record["task"] for record in ResultFile(path).records().values()]
    own = [task for task in tasks if task["contender"] == "two_head"]
    assert {task["stage"] for task in own} == {"test"}
    assert [(task["k"], task["seed"]) for task in own] == [(k, s) for s in SEEDS for k in (1.5, 2)]
    assert all(task["params"] == {"loss": "two_head"} | fixed for task in own)


def test_contenders_run_one_after_the_other_leave_the_records_of_one_run(
    experiment, finished_file, tmp_path
):
    from benchmarks.papers.runner import run_experiment
    from benchmarks.papers.store import ResultFile

    path = tmp_path / "parts.jsonl"
    for name, contender in experiment.contenders.items():
        part = dataclasses.replace(experiment, contenders={name: contender})
        run_experiment(part, path, None, run=runs_until(np.inf))
    assert ResultFile(path).records() == ResultFile(finished_file).records()


def fake_packs(folder, n_classes=100, per_class=12, n_test=4, size=32):
    """Write a pack in the form of that of CIFAR-100, and a module that reads its images."""
    rng = np.random.RandomState(0)
    y = np.repeat(np.arange(n_classes), per_class)
    np.savez(
        folder / "cifar100_a.npz",
        images=rng.randint(256, size=(len(y), size, size, 3)).astype(np.uint8),
        y_fine=y.astype(np.uint8),
        is_test=np.tile(np.arange(per_class) < n_test, n_classes),
        fine_to_coarse=(np.arange(n_classes) // 5).astype(np.uint8),
    )
    (folder / "load_packs.py").write_text("def decode_images(pack):\n    return pack['images']\n")


def test_images_of_the_pack_are_drawn_as_asked(tmp_path):
    from benchmarks.papers.data import load_split

    fake_packs(tmp_path)
    pack = np.load(tmp_path / "cifar100_a.npz")
    tail = {"n_classes": 10, "imbalance": 5, "largest": 5, "n_val": 3}
    split = load_split({"name": "cifar100_pack", **tail}, tmp_path, 0)
    classes, counts = np.unique(split.y_train, return_counts=True)
    expected = np.round(5 * 5.0 ** -(np.arange(10) / 9))
    assert sorted(counts, reverse=True) == expected.tolist()
    for labels, each in ((split.y_val, 3), (split.y_test, 4)):
        found = np.unique(labels, return_counts=True)
        assert np.array_equal(found[0], classes)
        assert set(found[1]) == {each}
    # Every image is the mean over squares of one of the pack, and no two parts share one.
    small = [X.reshape(len(X), -1) for X in (split.X_train, split.X_val, split.X_test)]
    assert len(np.unique(np.concatenate(small), axis=0)) == sum(map(len, small))
    whole = pack["images"].astype(float)
    means = sum(whole[:, i::2, j::2] for i in (0, 1) for j in (0, 1)) / 4
    means = np.round(means).reshape(len(means), -1)
    for images, labels in zip(small, (split.y_train, split.y_val, split.y_test)):
        index = [np.flatnonzero((means == image).all(1)) for image in images]
        assert np.array_equal(pack["y_fine"][np.concatenate(index)], labels)


def test_a_real_tail_gives_its_counts_at_even_ranks(tmp_path):
    from benchmarks.papers.data import load_split

    fake_packs(tmp_path)
    counts = np.array([900, 6, 5, 5, 4, 3, 3, 2, 1])
    np.savez(tmp_path / "longtail_counts.npz", forest_train_sorted_approx=counts)
    data = {"tail": "forest", "n_classes": 5, "largest": 5, "n_val": 3}
    splits = [load_split({"name": "cifar100_pack"} | data, tmp_path, seed) for seed in (0, 1)]
    sizes = [dict(zip(*np.unique(split.y_train, return_counts=True))) for split in splits]
    for size, split in zip(sizes, splits):
        assert sorted(size.values(), reverse=True) == [5, 5, 4, 3, 1]
        assert set(split.y_val) == set(size)
    assert sizes[0] != sizes[1]


def test_noise_of_the_pack_stays_in_its_superclass_and_out_of_the_test_set(tmp_path):
    from benchmarks.papers.data import load_split

    fake_packs(tmp_path)
    data = {"name": "cifar100_pack", "per_class": 5, "n_val": 3}
    clean, noisy = (load_split(data | {"noise": p}, tmp_path, 0) for p in (0.0, 0.5))
    for part in ("X_train", "X_val", "X_test", "y_test"):
        np.testing.assert_array_equal(getattr(clean, part), getattr(noisy, part))
    for part in ("y_train", "y_val"):
        before, after = getattr(clean, part), getattr(noisy, part)
        np.testing.assert_array_equal(before // 5, after // 5)
        # Of 5 classes the old one is drawn again as often as any other.
        share, error = np.mean(before != after), 4 * np.sqrt(0.24 / len(before))
        assert abs(share - 0.5 * 0.8) < error


def test_sizes_are_recorded_by_training_samples_of_the_true_class():
    from benchmarks.papers.measure import by_shots

    class Fitted:
        classes_ = np.array(["a", "b", "c"])
        class_counts_ = np.array([19, 100, 101])

    rng = np.random.default_rng(0)
    y = rng.choice(Fitted.classes_, 50)
    sets = rng.random((50, 3)) < 0.5
    recorded = by_shots(Fitted, sets, y, every_size=True)
    for label, counts, mean in zip("abc", recorded["set_sizes"], recorded["shot_sizes"].values()):
        sizes = sets[y == label].sum(1).tolist()
        assert counts == [sizes.count(size) for size in range(max(sizes) + 1)]
        assert mean == pytest.approx(np.mean(sizes), abs=1e-4)
    assert recorded.keys() - by_shots(Fitted, sets, y, every_size=False).keys() == {"set_sizes"}


def test_level_sets_do_not_tell_the_false_classes_apart(monkeypatch):
    from benchmarks.papers import shapes

    monkeypatch.setattr(shapes, "SIDE", 12)
    scores = shapes.lattice()
    np.testing.assert_allclose(scores.sum(1), 2)
    assert len(scores) == (shapes.SIDE + 1) * (shapes.SIDE + 2) // 2
    by_scores = {tuple(s): i for i, s in enumerate(scores)}
    swapped = [by_scores[tuple(s[::-1])] for s in scores]
    for name, loss in shapes.LEVEL_SETS.items():
        values = np.array(shapes._level_set(loss))
        # Of the noised losses, only the mean over draws is symmetric.
        tolerance = 0.05 if "noised" in name else 0
        np.testing.assert_allclose(values, values[swapped], atol=tolerance)
        assert (values.min(), values.max()) == (0, 1)
        assert values[scores[:, 1].argmax()] == 0


def test_gradients_have_one_entry_more_than_draws_at_most(tmp_path, monkeypatch):
    from benchmarks.papers import shapes

    fake_packs(tmp_path, per_class=20)
    for name, value in {"SEEDS": (0,), "N_DRAWS": (1, 3), "EPSILONS": (0.0, 100.0)}.items():
        monkeypatch.setattr(shapes, name, value)
    rows = {(r["n_draws"], r["epsilon"]): r["n_nonzero"] for r in shapes.gradients(tmp_path)}
    # Two entries per active sample without noise, or with one draw.
    assert 1 < rows[1, 0.0] <= 2
    assert 1 < rows[3, 0.0] <= 2
    assert 1 < rows[1, 100.0] <= 2
    # Much noise draws three different classes of a hundred most of the time.
    assert 3 < rows[3, 100.0] <= 4


def test_sizes_add_up_over_seeds_and_top_1_is_that_of_the_record(experiment, finished_file):
    from benchmarks.papers.runner import finished
    from benchmarks.papers.statistics import Measurements
    from benchmarks.papers.store import ResultFile

    tests = finished(experiment, ResultFile(finished_file).records())[2]
    for record in tests:
        seed = record["task"]["seed"]
        record["top_1"] = 0.25 * seed
        for cell in record["cells"]:
            cell["set_sizes"] = [[0] * seed + [1], [2], []]
            cell["shot_sizes"] = {"few": seed, "medium": 0}
    m = Measurements(experiment, tests, 3)
    assert m.set_sizes("two_head", "average_k", 2).tolist() == [[1, 1, 1], [6, 0, 0], [0, 0, 0]]
    assert m.shot_sizes("two_head", "average_k", 2) == {"few": 1, "medium": 0}
    assert m.values("two_head", "average_k", 2, "top_1").tolist() == [0, 25, 50]
    assert m.difference(*[("two_head", "average_k")] * 2, 2, "top_1") == (0, 0)
