"""Train a species identifier on flowers that are drawn, and export it to flowers.onnx."""

import os

import numpy as np
from PIL import Image

from sksetvalued import AverageKClassifier, export
from sksetvalued.metrics import average_set_size, set_coverage_score

GENERA = {"Bellis": 12, "Rosa": 5, "Papaver": 4, "Iris": 3, "Primula": 6}  # number of petals
EPITHETS = {"alba": 0.0, "rosea": 0.35, "rubra": 0.7, "purpurea": 1.0}  # tone
SIZE = 32


def photograph(name, rng):
    """Draw a flower of a species, as bytes of shape (SIZE, SIZE, 3)."""
    genus, epithet = name.split()
    rows, columns = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j]
    x, y = columns + rng.normal(0, 0.08), rows + rng.normal(0, 0.08)
    radius, angle = np.hypot(x, y), np.arctan2(y, x) + rng.uniform(0, 2 * np.pi)
    opening = rng.uniform(0.15, 0.6)  # a closed flower shows little of its petals
    waves = np.cos(GENERA[genus] * angle / 2) ** 2
    edge = rng.uniform(0.55, 0.8) * (1 - opening + opening * waves)
    petal = 1 / (1 + np.exp((radius - edge) / rng.uniform(0.02, 0.12)))[:, :, np.newaxis]
    tone = np.clip(EPITHETS[epithet] + rng.normal(0, 0.1), 0, 1)
    colour = (1 - tone) * np.array([245, 240, 235]) + tone * np.array([150, 30, 140])
    meadow = np.array([70, 120, 60]) + rng.normal(0, 12, size=(SIZE, SIZE, 1))
    flower = np.where(radius[:, :, np.newaxis] < 0.12, [235, 190, 60], colour)
    image = petal * flower + (1 - petal) * meadow + rng.normal(0, 10, size=(SIZE, SIZE, 3))
    return image.clip(0, 255).astype(np.uint8)


def main(n_each=60, max_epochs=15):
    """Write flowers.onnx, and some photographs to try it on."""
    rng = np.random.default_rng(0)
    names = np.repeat([f"{g} {e}" for g in GENERA for e in EPITHETS], n_each)
    images = np.stack([photograph(name, rng) for name in names])
    test = np.arange(len(names)) % n_each < n_each // 4
    clf = AverageKClassifier(
        k=3,
        rule_params={"min_size": 1, "max_size": 5},
        max_epochs=max_epochs,
        random_state=0,
    )
    clf.fit(images[~test], names[~test]).calibrate(images[test])
    sets = clf.predict_set(images[test])
    coverage = set_coverage_score(names[test], sets, labels=clf.classes_)
    print(f"the set holds the species: {coverage:.1%}, with {average_set_size(sets):.2f} species")
    export(clf, "flowers.onnx")
    os.makedirs("photographs", exist_ok=True)
    for i in np.flatnonzero(test)[:: n_each // 4]:
        large = Image.fromarray(images[i]).resize((320, 320), Image.Resampling.BICUBIC)
        large.save(os.path.join("photographs", f"{names[i].replace(' ', '_')}.png"))


if __name__ == "__main__":
    main()
