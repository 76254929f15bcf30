"""The benchmark of the defaults in small: measured, resumed, and what it says."""

import lzma
from pathlib import Path

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

ROOT = Path(__file__).resolve().parents[2]
#: Tasks for choosing, whose data are generated or shipped with scikit-learn.
TASKS = ["ambiguous", "digits"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (ROOT / "benchmarks" / "defaults").is_dir(),
        reason="the benchmarks are not part of an installed package",
    ),
]


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    """Run the benchmark; return a function that runs it again, and the folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        from benchmarks.defaults.__main__ import main

        folder = tmp_path_factory.mktemp("defaults")

        def run(*commands):
            for command in commands:
                given = ["--results", folder, "--page", folder / "page.md", "--data", folder]
                contenders = ["top_k", "average_k", "logistic"]
                selected = ["--tasks", *TASKS, "--contenders", *contenders, "--seeds", "3"]
                main([command, *map(str, given), *selected])

        run("choose", "page")
        yield run, folder


def records(folder):
    return {path.name: lzma.decompress(path.read_bytes()) for path in folder.glob("*.xz")}


@pytest.mark.parametrize(
    ("own", "name"),
    [
        ("top_k", "ambiguous"),
        ("average_k", "ambiguous"),
        ("top_k", "digits"),
        ("average_k", "digits"),
    ],
)
def test_defaults_are_not_behind_a_logistic_regression(benchmark, own, name):
    from benchmarks.defaults.report import difference, load

    _, folder = benchmark
    runs = load(folder / "choose.jsonl")
    delta, half = difference(runs[name], own, "logistic", own, [0, 1, 2])
    assert delta + half > -0.5, (name, delta, half)


def test_what_was_measured_is_not_measured_again(benchmark):
    run, folder = benchmark
    before, page = records(folder), (folder / "page.md").read_text()
    run("choose", "page")
    assert records(folder) == before
    assert (folder / "page.md").read_text() == page
    assert page.count("| digits (3) |") == 5


def test_a_bare_loop_makes_as_many_updates_as_a_fit(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.defaults.bare import compare_with_bare_loop

    updates = []
    handle = register_optimizer_step_post_hook(lambda optimizer, *_: updates.append(optimizer))
    job = {"task": "network_small", "contender": "average_k", "seed": 0}
    try:
        record = compare_with_bare_loop(job, tmp_path)
    finally:
        handle.remove()
    # They are counted in one fit, and timed in two fits and two loops.
    assert len(updates) == 5 * record["updates"]
    assert all(isinstance(optimizer, torch.optim.AdamW) for optimizer in updates)
    assert record["bare"] > 0
