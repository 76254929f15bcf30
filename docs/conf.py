"""Configuration of the documentation."""

import gc
import os
import sys
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")  # for the processes that run the examples, too
sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import joblib

import sksetvalued

#: Processes that run the examples; one imports nothing twice.
jobs = int(os.environ.get("GALLERY_JOBS", min(4, joblib.cpu_count())))

project = "sksetvalued"
author = "The sksetvalued developers"
copyright = f"{author}, BSD 3-clause"
version = release = sksetvalued.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinx-mathjax-offline",
    "checks",
    "measured",
]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
exclude_patterns = ["_build", "auto_examples/**/*.ipynb", "**/GALLERY_HEADER.rst"]
templates_path = ["_templates"]
default_role = "literal"
smartquotes = False

# Every reference to this package must resolve; those to others are left as text, without network.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!sksetvalued\b).*")]

myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_inline", "amsmath"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "image_scrapers": ("matplotlib", "gallery"),
    "reset_modules": ("gallery.reset",),
    "reset_modules_order": "before",
    "within_subsection_order": "gallery.FirstExamplesFirst",
    "doc_module": ("sksetvalued",),
    "backreferences_dir": "api/generated/backreferences",
    "inspect_global_variables": True,
    "show_memory": False,
    "download_all_examples": False,
    "abort_on_example_error": False,
    "parallel": jobs > 1 and jobs,
    "remove_config_comments": True,
    "write_computation_times": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "sksetvalued"
html_static_path = ["_static"]
html_css_files = ["sets.css"]
html_show_sourcelink = False
html_sidebars = {"changelog": [], "contributing": [], "index": []}
html_theme_options = {
    "show_prev_next": True,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_toc_level": 2,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "logo": {"text": "sksetvalued"},
}


def setup(app):
    """Collect no garbage once the gallery is done: the pages make little, and hold much."""
    app.connect("env-before-read-docs", lambda *_: gc.disable())
    app.connect("build-finished", lambda *_: gc.enable())
