"""
Sets of classes in one minute
=============================

A digit whose lower rows are hidden may be a 4 or a 9, and no classifier can know which. Rather
than guess, a *set-valued* classifier returns every class that is worth considering.

Two estimators do it in two ways. :class:`~sksetvalued.TopKClassifier` gives every image the same
number of classes. :class:`~sksetvalued.AverageKClassifier` gives one class to a clear image and
several to an ambiguous one, so that there are `k` **on average**.
"""

# %%
# Real digits, partly hidden
# --------------------------
# The images come with scikit-learn. Of each, between none and six of the eight rows are hidden;
# the training images are used several times, hidden differently.
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

digits = load_digits()
rng = np.random.default_rng(0)


def hide_rows(images):
    """Set the lower rows of each image to -1, a random number of rows."""
    n_seen = rng.integers(2, 9, size=len(images))
    seen = np.arange(8)[:, np.newaxis] < n_seen[:, np.newaxis, np.newaxis]
    return np.where(seen, images, -1).reshape(len(images), -1)


train, test, y_train, y_test = train_test_split(
    digits.images, digits.target, test_size=600, stratify=digits.target, random_state=0
)
X_train, y_train = np.concatenate([hide_rows(train) for _ in range(5)]), np.tile(y_train, 5)
X_test = hide_rows(test)

# %%
# Fit, and read the sets
# ----------------------
from sksetvalued import AverageKClassifier, TopKClassifier

top_k = TopKClassifier(k=2, max_epochs=20, random_state=0).fit(X_train, y_train)
average_k = AverageKClassifier(k=2, max_epochs=20, random_state=0).fit(X_train, y_train)

top_sets = top_k.predict_labels(X_test[:10])
average_sets = average_k.predict_labels(X_test[:10])
print("true  top-2   average-2")
for label, top_set, average_set in zip(y_test, top_sets, average_sets, strict=False):
    print(f"{label:4}  {' '.join(map(str, top_set)):6}  {' '.join(map(str, average_set))}")

# %%
# How good are the sets?
# ----------------------
# Coverage is the share of images whose set holds the true class. The two kinds of sets have
# nearly the same average size, so that their coverages can be compared: two by design, which on
# new images holds up to the sampling error. One class for each image is what every classifier
# gives.
from sksetvalued.metrics import average_set_size, set_coverage_score

results = {"one class (top-1)": (top_k.score(X_test, y_test), 1.0)}
models = {"two classes (top-2)": top_k, "two on average (average-2)": average_k}
for name, model in models.items():
    sets = model.predict_set(X_test)
    coverage = set_coverage_score(y_test, sets, labels=model.classes_)
    results[name] = (coverage, average_set_size(sets))
for name, (coverage, size) in results.items():
    print(f"{name:27} holds the true class for {coverage:6.1%}, average size {size:.2f}")

# %%
# The picture
# -----------
# The first ten test images and their average-2 sets, the likeliest class first and the true one
# in green; a true class that was missed would stand in red beside the set.
from PIL import Image, ImageDraw, ImageFont

INK, HIDDEN, GREEN, RED, BAR = "#222222", (196, 206, 222), "#12813c", "#c02020", "#4a78b5"
WIDTH = 104


def draw_digit(canvas, left, top, pixels):
    """Draw an image of 8 x 8 grey levels, hidden pixels in blue."""
    grey = 255 - np.clip(pixels, 0, 16) * 15.9
    colours = np.where(pixels[:, :, np.newaxis] < 0, HIDDEN, grey[:, :, np.newaxis])
    tile = Image.fromarray(colours.astype(np.uint8))
    canvas.paste(tile.resize((WIDTH, WIDTH), Image.Resampling.NEAREST), (left, top))
    ImageDraw.Draw(canvas).rectangle((left, top, left + WIDTH, top + WIDTH), outline="#8090a8")


def draw_set(draw, left, top, labels, true):
    """Write the labels of a set, the true one in green, or in red beside the set."""
    words = [(str(label), GREEN if label == true else INK) for label in labels]
    if true not in labels:
        words.append((f"({true})", RED))
    size = 26 if len(words) < 5 else 20
    font = ImageFont.load_default(size)
    widths = [draw.textlength(word, font) + 8 for word, _ in words]
    x = left + (WIDTH - sum(widths)) / 2 + 4
    for (word, colour), width in zip(words, widths, strict=True):
        draw.text((x, top + (26 - size) / 2), word, colour, font)
        x += width


picture = Image.new("RGB", (1180, 360), "white")
draw = ImageDraw.Draw(picture)
title, text = ImageFont.load_default(24), ImageFont.load_default(22)
draw.text((20, 12), "What the model saw (blue is hidden), and its set of classes", INK, title)
for i, labels in enumerate(average_sets):
    draw_digit(picture, 20 + 115 * i, 56, X_test[i].reshape(8, 8))
    draw_set(draw, 20 + 115 * i, 170, labels, y_test[i])
for i, (name, (coverage, _)) in enumerate(results.items()):
    top = 236 + 40 * i
    draw.text((20, top), name, INK, text)
    draw.rectangle((330, top + 2, 330 + 560 * coverage, top + 26), fill=BAR)
    draw.text((900, top), f"{coverage:.0%} hold the true class", INK, text)
picture.save("quickstart_sets.png")
print("The picture is saved as quickstart_sets.png")
