"""Pages about what was measured, written from the records in the source."""

import subprocess
import sys
from pathlib import Path

from sphinx.util import logging

logger = logging.getLogger(__name__)
ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
#: name: (what writes the page, programs and records that it is made from)
PAGES = {
    "papers.md": (["-m", "benchmarks.papers", "report"], "papers/*.*"),
    "coverage.md": (["benchmarks/coverage_report.py"], "coverage*.*"),
}


def write_pages(app):
    """Write the pages and their pictures, unless they are newer than all they are made from."""
    folder = Path(app.srcdir) / "measured"
    for name, (script, sources) in PAGES.items():
        page = folder / name
        made_from = [*BENCHMARKS.glob(sources), *(BENCHMARKS / "results").glob(sources)]
        newest = max(path.stat().st_mtime for path in made_from)
        if page.exists() and page.stat().st_mtime > newest:
            continue
        logger.info("writing %s from the records", name)
        # Another process: this one has its own settings of matplotlib.
        subprocess.run([sys.executable, *script, "--page", str(page)], cwd=ROOT, check=True)


def setup(app):
    """Register the writer, before Sphinx looks for pages."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True}
