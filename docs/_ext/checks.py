"""Checks of the built pages, and of what becomes part of the reference."""

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.util import logging

logger = logging.getLogger(__name__)


class Page(HTMLParser):
    """The links of an HTML page, and what can be linked to in it."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors |= {attrs[name] for name in ("id", "name") if attrs.get(name)}
        for name in ("href", "src"):
            if attrs.get(name):
                self.links.append(attrs[name])


def check_links(app, exception):
    """Warn of every internal link that leads nowhere."""
    if exception is not None or app.builder.name != "html":
        return
    root = Path(app.outdir)
    find = cache(linked_file)
    paths = [path for path in root.rglob("*.html") if "_static" not in path.parts]
    pages = {path: Page(path) for path in paths}
    for path, page in pages.items():
        for link in page.links:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = find(path.parent, unquote(url.path)) if url.path else path
            anchors = pages[target].anchors if target in pages else {url.fragment}
            if target is None or unquote(url.fragment) not in anchors:
                logger.warning("broken link in %s: %s", path.relative_to(root), link)


def linked_file(folder, link):
    """Return the file that a link in a page of a folder leads to, or None."""
    target = (folder / link).resolve()
    if target.is_dir():
        target = target / "index.html"
    return target if target.exists() else None


def skip_inherited(app, what, name, obj, skip, options):
    """Leave out of the reference what scikit-learn and torch define."""
    module = getattr(obj, "__module__", None) or getattr(
        getattr(obj, "fget", None), "__module__", ""
    )
    return skip or not str(module).startswith("sksetvalued") or None


def setup(app):
    """Register the checks."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-skip-member", skip_inherited)
    app.connect("build-finished", check_links, priority=900)
    return {"parallel_read_safe": True}
