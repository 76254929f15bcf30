"""How the gallery is ordered, and how its pictures are found."""

import gc
import os
import random
import re

import matplotlib as mpl
import numpy as np
import torch
from PIL import Image

COLOURS = ("#2f6db3", "#d9822b", "#3a8f5c", "#b0413e", "#7a5ca8", "#6b7280")
FIRST = (
    "plot_quickstart.py",
    "plot_average_k_and_top_k.py",
    "plot_any_classifier.py",
    "plot_text_intents.py",
    "plot_image_backbones.py",
    "plot_fine_tuning.py",
    "plot_long_tail.py",
    "plot_phone_screen.py",
    "plot_species_identifier.py",
    "plot_multilabel.py",
    "plot_loss_level_sets.py",
)


class FirstExamplesFirst:
    """Sort the examples of a newcomer before the others."""

    def __init__(self, src_dir):
        self.src_dir = src_dir

    def __call__(self, name):
        return FIRST.index(name) if name in FIRST else len(FIRST), name

    def __repr__(self):
        # Part of Sphinx's configuration: it must not change between builds.
        return "<FirstExamplesFirst>"


def pil_scraper(block, block_vars, gallery_conf):
    """Show the picture that a block of an example saved with ``picture.save``."""
    from sphinx_gallery.scrapers import figure_rst

    picture = block_vars["example_globals"].get("picture")
    if not isinstance(picture, Image.Image) or not re.search(r"^picture\.save\(", block[1], re.M):
        return ""
    path = next(iter(block_vars["image_path_iterator"]))
    picture.save(path)
    return figure_rst([path], gallery_conf["src_dir"])


def _get_sg_image_scraper():
    return pil_scraper


def reset(gallery_conf, fname):
    """Start every example with the same random state, one thread, and the colours of the pages.

    Examples run in processes of their own, which do not read conf.py.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    mpl.rcParams["axes.prop_cycle"] = mpl.cycler(color=COLOURS)
    torch.set_num_threads(1)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    # The gallery collects garbage before each example; what modules hold it need not look through.
    gc.freeze()
