"""The benchmarks run on a tiny cell, and their pages follow from the figures alone."""

import importlib
import json
import lzma
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def _call(script, *arguments):
    command = [sys.executable, str(BENCHMARKS / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)


def _read(results):
    return json.loads(lzma.decompress(results.read_bytes()))


@pytest.mark.parametrize("script", ["__main__.py", "parallel.py"])
@pytest.mark.usefixtures("benchmark_path")
def test_who_asks_for_help_measures_nothing(script, monkeypatch, capsys):
    def start(*args, **kwargs):
        raise AssertionError("it measures")

    monkeypatch.setattr(subprocess, "run", start)
    monkeypatch.setattr(torch.multiprocessing, "get_context", start)
    for argument, status in (("--help", 0), ("--typo", 2)):
        monkeypatch.setattr(sys, "argv", [script, argument])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(BENCHMARKS / script), run_name="__main__")
        assert end.value.code == status
    assert "usage: " in capsys.readouterr().out


@pytest.fixture
def main_of(monkeypatch, benchmark_path):
    """Return what finds the command line of a module of the benchmarks."""
    monkeypatch.syspath_prepend(BENCHMARKS.parent)
    return lambda module: importlib.import_module(f"benchmarks.{module}").main


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("defaults.__main__", "page"),
        ("defaults.sizes", "page"),
        ("defaults.grids", "page"),
        ("papers.__main__", "report"),
    ],
)
def test_a_page_without_records_is_not_written(module, command, main_of, tmp_path, capsys):
    page, results = tmp_path / "page.md", tmp_path / "typo"
    page.write_text("what was measured")
    with pytest.raises(SystemExit) as end:
        main_of(module)([command, "--results", str(results), "--page", str(page)])
    assert end.value.code == 2
    assert f"{results} holds no records that a page can be made from" in capsys.readouterr().err
    assert page.read_text() == "what was measured"
    assert list(tmp_path.iterdir()) == [page]


@pytest.mark.parametrize(
    ("module", "arguments", "error"),
    [
        ("papers.__main__", ["tiny", "--contenders", "nope"], "--contenders: tiny has no nope; "),
        ("papers.__main__", ["tiny", "--n-jobs", "0"], "--n-jobs: must be 1 or more, or -1"),
        ("multilabel", ["--sets", "scene,nope"], "--sets: 'nope' is no set; choose from birds"),
    ],
)
def test_wrong_arguments_are_named(module, arguments, error, main_of, tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main_of(module)(["run", *arguments, "--results", str(tmp_path / "results")])
    assert end.value.code == 2
    assert error in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "arguments", "names"),
    [
        ("defaults.sizes", ["run", "--sets", "letter", "hwu"], ["letter", "hwu"]),
        ("multilabel", ["run", "--sets", "scene,yeast"], ["scene", "yeast"]),
        ("coverage", [], ["everything"]),
    ],
)
def test_what_lacks_its_data_is_left_out(module, arguments, names, main_of, tmp_path, capsys):
    given = ["--data", str(tmp_path)]
    if arguments:
        given += ["--results", str(tmp_path / "results")]
    main_of(module)([*arguments, *given])
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(names)
    for name, line in zip(names, said, strict=True):
        assert line.startswith(f"{name} left out: {tmp_path}")
    assert not list(tmp_path.iterdir())


def test_a_seed_of_the_grids_that_was_cut_short_is_left_out(main_of, tmp_path):
    main = main_of("defaults.grids")
    from benchmarks.defaults.grids import GRIDS

    rng, values = np.random.default_rng(0), (*GRIDS["alpha"].values, None)
    lines = [
        json.dumps({"task": {"grid": "alpha", "value": value, "seed": seed}, "coverage": found})
        for seed in range(5)
        for value, found in zip(values, rng.uniform(50, 60, len(values)), strict=True)
    ]

    def page_of(n_lines):
        results, page = tmp_path / f"{n_lines}.jsonl", tmp_path / "page.md"
        results.write_text("".join(f"{line}\n" for line in lines[:n_lines]))
        main(["page", "--choose", "2", "--results", str(results), "--page", str(page)])
        return page.read_text()

    for n_seeds in (3, 4):
        text = page_of(n_seeds * len(values))
        assert page_of(n_seeds * len(values) + 3) == text
        assert (" ± " in text.partition("Best: ")[2]) == (n_seeds > 3)
    for n_lines in (2, 2 * len(values) + 3):
        with pytest.raises(SystemExit):
            page_of(n_lines)


@pytest.mark.usefixtures("benchmark_path")
def test_losses_are_compared_by_the_seeds_that_all_have(tmp_path):
    import measuring
    import multilabel

    rng = np.random.default_rng(0)

    def one_run():
        sets = {size: dict.fromkeys(multilabel.METRICS, rng.random()) for size in multilabel.SIZES}
        ranking = dict.fromkeys(multilabel.METRICS, rng.random())
        return {"ranking": ranking, "sets": sets, "epochs": 1}

    def page_of(entry):
        results, page = tmp_path / "results.json", tmp_path / "page.md"
        measuring.write_json(results, {"birds": entry})
        multilabel.main(["page", "--results", str(results), "--page", str(page)])
        return page.read_text()

    entry = {loss: {str(s): one_run() for s in range(5)} for loss in multilabel.LOSSES}
    entry |= {"logistic": {"0": one_run()}, "shape": [10, 5, 3], "average_size": 2.0}
    del entry["bce"]["1"]
    cut = page_of(entry)
    del entry["sparse_top"]["3"]
    other = page_of(entry)
    for loss in multilabel.LOSSES:
        entry[loss] = {s: entry[loss][s] for s in "024"}
    assert page_of(entry) == other != cut
    entry["bce"] = {}
    with pytest.raises(SystemExit):
        page_of(entry)


@pytest.mark.slow
@pytest.mark.usefixtures("benchmark_path")
def test_speed_runs_and_the_report_follows_from_the_figures(tmp_path):
    results, page = tmp_path / "results" / "speed.json.xz", tmp_path / "speed.md"
    sizes = ["--cells", "4x20x2", "6x30x2", "--draws", "1", "2", "--draws-cell", "4x20x2"]
    _call("speed.py", "run", *sizes, "--rounds", 2, "--seconds", 0.1, "--results", results)
    measured = _read(results)
    first = measured["cells"][0]["contenders"]
    assert first["cross-entropy"]["cpu_ratio"] == 1
    assert all(timing["cpu_ms"] > 0 for timing in first.values())

    import speed_report

    speed_report.write(results, page)
    text = page.read_text()
    assert all(f"| {name} |" in text for name in first)
    assert (tmp_path / "results" / "speed.png").stat().st_size > 0
    speed_report.write(results, page)
    assert page.read_text() == text


@pytest.mark.usefixtures("benchmark_path")
def test_peak_bytes_counts_what_is_held_at_once():
    import measuring

    def function():
        first = torch.zeros(100_000)
        second = torch.zeros(200_000)
        del first
        return second + 1

    # 100,000 and 200,000 numbers, then 200,000 twice, and a few small objects.
    assert 0 <= measuring.peak_bytes(function) - 4 * 400_000 < 10_000


@pytest.mark.usefixtures("benchmark_path")
def test_peak_bytes_counts_the_memory_of_numpy_apart_for_forward_and_backward():
    import measuring

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, input):
            table = np.zeros(500_000, dtype=np.float32)
            return input + torch.from_numpy(table[:1])

        @staticmethod
        def backward(ctx, gradient):
            return torch.ones(300_000)[:1] * gradient

    def function():
        Double.apply(torch.zeros(1, requires_grad=True)).backward()

    # NumPy's 500,000 numbers are gone when torch holds 300,000.
    assert 0 <= measuring.peak_bytes(function) - 4 * 500_000 < 10_000


@pytest.mark.usefixtures("benchmark_path")
def test_plain_versions_compute_the_same_losses():
    import contenders

    from sksetvalued import losses

    torch.manual_seed(0)
    scores, target = 3 * torch.randn(8, 30), torch.randint(30, (8,))
    for k in (1, 3):
        hinge = losses.CalibratedTopKHingeLoss(k)(scores, target)
        torch.testing.assert_close(contenders.plain_hinge(k)(scores, target), hinge)
        smoothed = losses.SmoothedTopKHingeLoss(k, tau=contenders.TAU)(scores, target)
        torch.testing.assert_close(contenders.plain_smoothed(k)(scores, target), smoothed)


def _timing(cpu_ms):
    ratios = {"cpu_ratio": cpu_ms / 100, "wall_ratio": cpu_ms / 100}
    return {"cpu_ms": cpu_ms, "wall_ms": cpu_ms, "rounds": 1, **ratios}


@pytest.mark.slow
@pytest.mark.usefixtures("benchmark_path")
def test_training_report_follows_from_the_figures(tmp_path):
    results, page = tmp_path / "results" / "training.json.xz", tmp_path / "training.md"
    _call("training.py", "run", "--only", "growth", "--sizes", 100, 200, "--results", results)
    costs = {
        "bare loop": 100.0,
        "estimator": 110.0,
        "estimator, 20 % held out": 100.0,
        "skorch": 150.0,
        "skorch, 20 % held out (its default)": 250.0,
    }
    figures = _read(results)
    figures["fit"] = {"a table": {name: _timing(cost) for name, cost in costs.items()}}
    results.write_bytes(lzma.compress(json.dumps(figures).encode()))

    import training_report

    training_report.write(results, page)
    text = page.read_text()
    assert "| estimator / bare loop (a table) | 1.10 | 1.10 | ≤ 1.15 | met |" in text
    assert "| skorch / estimator (a table) | 1.36 | 1.36 | ≥ 2.0 | **not met** |" in text
    assert "| calibrate |" in text
    assert (tmp_path / "results" / "training.png").stat().st_size > 0


@pytest.mark.usefixtures("benchmark_path")
def test_rules_of_others_are_what_their_definitions_say():
    import rule_contenders as others

    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(6, 0.5), size=90)
    y = (p.cumsum(1) < rng.random((90, 1))).sum(1).clip(max=5)
    p, y, new = p[:60], y[:60], p[60:]
    sets, promised = others.backward(p, y, new, 2)
    total = -np.log(p[np.arange(60), y]).sum()
    for row, members, level in zip(new, sets, 1 - promised):
        e = 61 * -np.log(row) / (total - np.log(row))
        # The least level at which two classes at most are left, up to the step of the grid.
        grid = np.linspace(0.001, 1, 4000)
        fits = (e[:, None] < 1 / grid).sum(0) <= 2
        least = grid[fits].min(initial=1.0)
        assert least - 3e-4 <= level <= least
        np.testing.assert_array_equal(members, e < 1 / level)

    ranked = others.ranks(p)
    np.testing.assert_array_equal((ranked == 1).argmax(1), p.argmax(1))
    sets = others.rank_calibrated(p, y, new, 0.2)
    for c in range(6):
        rank, true = ranked[y == c, c], p[y == c, c]
        deepest = next(k for k in range(1, 7) if np.mean(rank > k) < 0.2)
        left, n = 0.2 - np.mean(rank > deepest), len(true)
        allowed = [v for v in true if (np.sum(true < v) + 1) / (n + 1) <= left]
        kept = (new[:, c] >= max(allowed, default=-np.inf)) & (others.ranks(new)[:, c] <= deepest)
        np.testing.assert_array_equal(sets[:, c], kept)
    # Too few samples for clusters: one threshold for all, from the samples left for it.
    sets = others.clustered(p, y, new, 0.2, 0)
    assert (new[sets].min() > new[~sets]).all()


@pytest.mark.skipif(not shutil.which("make"), reason="there is no make")
@pytest.mark.usefixtures("benchmark_path")
def test_an_interpreter_may_have_a_relative_path(tmp_path):
    root, python = BENCHMARKS.parent, tmp_path / "python"
    python.write_text("#!/bin/sh\necho reached\nexit 1\n")
    python.chmod(0o755)
    (tmp_path / "tests").mkdir()
    for command in (
        ["make", "-f", root / "Makefile", "hostile", "PYTHON=./python"],
        [root / ".ci" / "sanitized", "./python"],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert "reached" in done.stdout
