"""One experiment of the papers' runner end to end: killed, resumed, reported."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (ROOT / "benchmarks" / "papers").is_dir(),
        reason="the benchmarks are not part of an installed package",
    ),
]


def start(*arguments):
    command = [sys.executable, "-m", "benchmarks.papers", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"})


def whole_lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_killed_experiment_resumes_and_its_page_follows_from_its_records(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.papers.configs import TRIALS
    from benchmarks.papers.store import task_key

    experiment, path = TRIALS["tiny"], tmp_path / "tiny.jsonl"
    for n_lines in (2, 8):
        process = start("run", "tiny", "--results", tmp_path)
        try:
            while whole_lines(path) < n_lines:
                assert process.poll() is None, "the run ended before it could be killed"
                time.sleep(0.01)
        finally:
            process.kill()
            process.wait()
    before = path.read_bytes()
    assert start("run", "tiny", "--results", tmp_path, "--n-jobs", 2).wait() == 0

    content = path.read_bytes()
    whole = before[: before.rfind(b"\n") + 1]
    assert content.startswith(whole)
    records = [json.loads(line) for line in content.splitlines()]
    keys = [task_key(record["task"]) for record in records]
    by_key = dict(zip(keys, records))
    chosen = experiment.select(by_key)
    planned = experiment.tuning_tasks() + experiment.test_tasks(chosen)
    assert sorted(keys) == sorted(map(task_key, planned))

    assert start("run", "tiny", "--results", tmp_path).wait() == 0
    assert path.read_bytes() == content

    page = tmp_path / "page.md"
    assert start("report", "--results", tmp_path, "--page", page).wait() == 0
    mean = mean_coverage(records, "multi_label_head", "average_k", 2)
    assert re.search(rf"\D({mean:.1f}|{mean:.2f}) ±", page.read_text())


def mean_coverage(records, contender, rule, k):
    """Return the mean over the test records, in percent."""
    return 100 * np.mean(
        [
            figures["coverage"]
            for record in records
            for cell, figures in zip(record["task"]["cells"], record["cells"])
            if record["task"]["stage"] == "test"
            and record["task"]["contender"] == contender
            and cell == [rule, k]
        ]
    )


def test_the_page_of_the_recorded_fits_has_every_experiment_and_picture(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.papers.configs import EXPERIMENTS
    from benchmarks.papers.report import write

    page = tmp_path / "papers.md"
    write(page)
    text = page.read_text()
    assert all(f"## {e.title}\n" in text for e in EXPERIMENTS.values() if not e.full)
    pictures = re.findall(r"!\[.*\]\((.*)\)", text)
    assert len(pictures) > len([e for e in EXPERIMENTS.values() if not e.full])
    assert all((tmp_path / picture).stat().st_size > 0 for picture in pictures)
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        Path(picture).name for picture in pictures
    }
