"""Stream a folder of images through an exported model into a CSV, a batch at a time."""

import argparse
import csv
from pathlib import Path

from identifier import Identifier, read
from tqdm import tqdm

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp"}


def main():
    """Write one line for each image: its path, its species, their probabilities, an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("csv", type=Path)
    parser.add_argument("--model", default="flowers.onnx")
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()
    identifier = Identifier(options.model)
    paths = sorted(p for p in options.folder.rglob("*") if p.suffix.lower() in SUFFIXES)
    # Names of files may be of bytes that are no text.
    text = {"encoding": "utf-8", "errors": "surrogateescape", "newline": ""}
    with open(options.csv, "w", **text) as file, tqdm(total=len(paths), unit="image") as bar:
        table = csv.writer(file)
        table.writerow(["path", "species", "probabilities", "error"])
        for start in range(0, len(paths), options.batch_size):
            batch = paths[start : start + options.batch_size]
            for row in lines(identifier, batch):
                table.writerow(row)
            bar.update(len(batch))


def lines(identifier, paths):
    """Return the lines of some images; one that cannot be read says why and stops nothing."""
    images, errors = {}, {}
    for path in paths:
        try:
            images[path] = read(path)
        except ValueError as error:
            errors[path] = str(error)
    answers = dict(zip(images, identifier.sets(images.values()), strict=True)) if images else {}
    for path in paths:
        species, probabilities = zip(*answers[path]) if answers.get(path) else ((), ())
        yield (
            path,
            ";".join(species),
            ";".join(f"{p:.4f}" for p in probabilities),
            errors.get(path, ""),
        )


if __name__ == "__main__":
    main()
