"""The README keeps its promises."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_usage_runs_and_gives_sets_of_the_promised_size(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line]) <= 15
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    sizes = names["sets"].sum(axis=1)
    assert names["sets"].shape == (len(names["X_test"]), 20)
    assert abs(sizes.mean() - 3) < 0.5
    assert len(set(sizes)) > 1
    assert names["clf"].predict_set(names["X_test"]).sum(axis=1).mean() <= 2
    assert "epsilon" in capsys.readouterr().out


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#]+)\)", README))
def test_links_and_pictures_exist(target):
    assert (ROOT / target).is_file()


def test_the_two_commands_are_there():
    assert "pip install . && python examples/plot_quickstart.py" in README
    assert 'pip install -e ".[test]" && python -m pytest' in README
