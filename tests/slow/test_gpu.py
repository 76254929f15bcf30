"""The command for a GPU works, as far as a machine without one can tell."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.py"
pytestmark = pytest.mark.slow


def run(*arguments):
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


def test_a_dry_run_checks_laws_and_measures(tmp_path):
    pytest.importorskip("triton")
    page = tmp_path / "gpu.md"
    done = run("--dry", "--limit", 600, "--page", page)
    assert done.returncode == 0, done.stdout + done.stderr
    text = page.read_text()
    assert "no figures of a GPU" in text
    laws = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| ")]
    laws = {cells[0].strip(): cells[1:] for cells in laws}
    for name in ("kernels", "all other tests"):
        passed, failed, *_ = (int(cell) for cell in laws[name])
        assert passed >= 2
        assert failed == 0
    for name in ("cross-entropy", "noised hinge, 3 draws, small noise", "pytopk, 3 draws"):
        assert float(laws[name][0]) > 0
    assert laws["cross-entropy"][1].strip() == "1"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_written(tmp_path):
    done = run("--page", tmp_path / "gpu.md")
    assert done.returncode == 2
    assert "There is no GPU" in done.stderr
    assert not (tmp_path / "gpu.md").exists()


@pytest.mark.usefixtures("benchmark_path")
def test_what_was_measured_is_kept_when_the_time_ends(tmp_path, monkeypatch):
    import gpu

    law = {"passed": 1, "skipped": 0, "failed": [], "seconds": 1.0}
    monkeypatch.setattr(gpu, "run_laws", lambda *args: law)
    monkeypatch.setattr(gpu, "measure_training", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        gpu.main(["--dry", "--page", str(tmp_path / "gpu.md")])
    assert "### 4 x 20" in (tmp_path / "gpu.md").read_text()


@pytest.mark.usefixtures("benchmark_path")
def test_what_fails_or_does_not_end_is_told(tmp_path):
    import gpu

    assert gpu.read_report(tmp_path / "absent")["failed"] == ["did not end in time"]
    report = tmp_path / "report.xml"
    cases = '<testcase name="good"/><testcase name="bad"><failure/></testcase>'
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    assert gpu.read_report(report) == {"passed": 1, "skipped": 0, "failed": ["bad"]}
    report.write_text('<testsuite><testcase name="out"><skipped/></testcase></testsuite>')
    assert gpu.read_report(report)["failed"] == ["nothing ran"]
    law = {"passed": 1, "skipped": 0, "failed": ["bad"], "seconds": 1.0}
    assert "* kernels: `bad`" in gpu.laws_section({"kernels": law})
