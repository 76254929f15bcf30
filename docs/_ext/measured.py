"""The page about the papers' claims, written from the records in the source."""

import subprocess
import sys
from pathlib import Path

from sphinx.util import logging

logger = logging.getLogger(__name__)
ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "benchmarks" / "papers", ROOT / "benchmarks" / "results" / "papers"


def write_page(app):
    """Write the page and its pictures, unless they are newer than all they are made from."""
    page = Path(app.srcdir) / "measured" / "papers.md"
    newest = max(path.stat().st_mtime for folder in SOURCES for path in folder.glob("*.*"))
    if page.exists() and page.stat().st_mtime > newest:
        return
    logger.info("writing %s from the records", page.name)
    # Another process: this one has its own settings of matplotlib.
    command = [sys.executable, "-m", "benchmarks.papers", "report", "--page", str(page)]
    subprocess.run(command, cwd=ROOT, check=True)


def setup(app):
    """Register the writer, before Sphinx looks for pages."""
    app.connect("builder-inited", write_page)
    return {"parallel_read_safe": True}
