"""Reader of the published folders of Pl@ntNet-300K."""

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np

from .._checks import check_option

SPLITS = ("train", "val", "test")
ARCHIVE_FOLDER = "plantnet_300K"
METADATA = "plantnet300K_metadata.json"
SPECIES_NAMES = "plantnet300K_species_id_2_name.json"
N_SHOWN = 3


def load_plantnet300k(root, split="train"):
    """List the images of Pl@ntNet-300K, as published [1]_, with their species.

    The paths can be given to an estimator as they are: images are read when they are needed.
    Nothing is downloaded.

    Parameters
    ----------
    root : path-like
        Folder of the unpacked archive (or its parent), which holds
        ``images/{train,val,test}/<species_id>/<image_id>.jpg`` and the files
        ``plantnet300K_metadata.json`` and ``plantnet300K_species_id_2_name.json``.
    split : {"train", "val", "test"}, default="train"

    Returns
    -------
    paths : ndarray of str of shape (n_images,)
        In the order of the species, then of the images.
    y : ndarray of str of shape (n_images,)
        Identifier of the species.
    species_names : dict of str to str
        Scientific name by identifier, for all species of the data set.

    Raises
    ------
    ValueError
        An unknown split, or images that do not agree with the metadata.
    FileNotFoundError
        A folder or a metadata file that is not there.

    References
    ----------
    .. [1] Garcin, Joly, Bonnet, Affouard, Lombardo, Chouet, Servajean, Lorieul, Salmon (2021).
       Pl@ntNet-300K: a plant image dataset with high label ambiguity and a long-tailed
       distribution. NeurIPS Datasets and Benchmarks. https://doi.org/10.5281/zenodo.4726653

    Examples
    --------
    >>> from sksetvalued.datasets import load_plantnet300k
    >>> paths, y, species_names = load_plantnet300k("plantnet_300K", "val")  # doctest: +SKIP
    """
    check_option("split", split, SPLITS)
    root = _archive_folder(Path(root))
    folder = root / "images" / split
    if not folder.is_dir():
        raise FileNotFoundError(f"root={str(root)!r} has no folder images/{split}.")
    species_names = _read_json(root / SPECIES_NAMES)
    found = [
        (species, name)
        for species in sorted(os.listdir(folder))
        for name in _images(folder / species)
    ]
    _check_metadata(found, _read_json(root / METADATA), split, species_names)
    paths = [os.path.join(folder, species, name) for species, name in found]
    return np.array(paths, dtype=str), np.array([s for s, _ in found], dtype=str), species_names


def _archive_folder(root):
    inside = root / ARCHIVE_FOLDER
    return inside if inside.is_dir() and not (root / "images").is_dir() else root


def _read_json(path):
    if not path.is_file():
        raise FileNotFoundError(
            f"{str(path)!r} is absent: `root` must be the folder of the published archive, with "
            f"{METADATA} and {SPECIES_NAMES}."
        )
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _images(folder):
    if not folder.is_dir():
        return []
    return sorted(name for name in os.listdir(folder) if name.lower().endswith((".jpg", ".jpeg")))


def _check_metadata(found, metadata, split, species_names):
    """Raise ValueError unless the images on disk are those of the split, under their species."""
    expected = {
        image: entry.get("species_id")
        for image, entry in metadata.items()
        if entry.get("split") == split
    }
    images = [os.path.splitext(name)[0] for _, name in found]
    on_disk = dict(zip(images, (species for species, _ in found), strict=True))
    _refuse("on the disk twice", sorted(i for i, n in Counter(images).items() if n > 1), split)
    _refuse("absent from the disk", sorted(expected.keys() - on_disk.keys()), split)
    _refuse("not listed by the metadata", sorted(on_disk.keys() - expected.keys()), split)
    misplaced = [i for i, species in on_disk.items() if str(expected[i]) != species]
    _refuse("in the folder of another species", misplaced, split)
    _refuse(
        "of a species without a name", sorted(set(on_disk.values()) - set(species_names)), split
    )


def _refuse(what, images, split):
    if images:
        raise ValueError(
            f"{len(images)} images of split={split!r} are {what}, as {images[:N_SHOWN]}: the "
            "copy is incomplete or was changed; unpack the archive again."
        )
