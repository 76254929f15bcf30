"""Pages about what was measured, written from the records in the source."""

import sys
from importlib import import_module
from pathlib import Path

import matplotlib as mpl
from sphinx.util import logging

logger = logging.getLogger(__name__)
ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
#: name: (module that writes the page, programs and records that it is made from)
PAGES = {
    "papers.md": ("benchmarks.papers.report", "papers/*.*"),
    "coverage.md": ("coverage_report", "coverage*.*"),
}


def write_pages(app):
    """Write the pages and their pictures, unless they are newer than all they are made from."""
    folder = Path(app.srcdir) / "measured"
    for name, (module, sources) in PAGES.items():
        page = folder / name
        made_from = [*BENCHMARKS.glob(sources), *(BENCHMARKS / "results").glob(sources)]
        newest = max(path.stat().st_mtime for path in made_from)
        if page.exists() and page.stat().st_mtime > newest:
            continue
        logger.info("writing %s from the records", name)
        folder.mkdir(exist_ok=True)
        with mpl.rc_context():
            mpl.rcdefaults()  # in place of the settings of the gallery
            _writer(module)(page)


def _writer(module):
    """Return the function of a benchmark that writes its page."""
    path = sys.path[:]
    sys.path[:0] = [str(ROOT), str(BENCHMARKS)]
    try:
        return import_module(module).write
    finally:
        sys.path[:] = path


def setup(app):
    """Register the writer, before Sphinx looks for pages."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True}
