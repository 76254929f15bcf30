"""The code of the documentation runs, page by page."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted([*DOCS.glob("guide/*.md"), *DOCS.glob("migration/*.md")])


def code_of(page):
    """Return the blocks marked as Python to run, joined."""
    text = page.read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE))


@pytest.mark.usefixtures("exports_share_operations")
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if code_of(page)], ids=lambda page: page.stem
)
def test_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Images are read by as many processes as there are cores; one is enough.
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)
    np.random.seed(0)
    torch.manual_seed(0)
    exec(compile(code_of(page), str(page), "exec"), {"__name__": "page"})
