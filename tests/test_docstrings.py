"""Docstrings of public objects follow numpydoc, and the reference lists all of them."""

import importlib
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from numpydoc.validate import validate

from sksetvalued import AverageKClassifier, SparseTopClassifier, TopKClassifier

MODULES = [
    "sksetvalued",
    "sksetvalued.datasets",
    "sksetvalued.losses",
    "sksetvalued.losses.functional",
    "sksetvalued.metrics",
    "sksetvalued.networks",
    "sksetvalued.operators",
    "sksetvalued.rules",
]
# https://numpydoc.readthedocs.io/en/latest/validation.html
SUMMARY = {"GL03", "GL08", "SS02", "SS03", "SS04", "SS05", "SS06"}
SECTIONS = {"GL06", "GL07", "GL09", "GL10", "PR02", "PR03", "PR05", "PR10", "YD01"}
PARAMETERS = {"PR01", "RT01"}
# Methods that scikit-learn's tools call, not users; and names that torch defines.
HOOKS = {"extra_repr", "reset_parameters"}


def public_objects():
    """Yield the qualified name of each public class and function, and the object."""
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name, thing in vars(module).items():
            if name.startswith("_") or not (inspect.isclass(thing) or inspect.isfunction(thing)):
                continue
            if thing.__module__.startswith("sksetvalued"):
                yield f"{module_name}.{name}", thing


OBJECTS = dict(public_objects())


def methods():
    """Yield the public methods that a class documents by itself."""
    for name, cls in OBJECTS.items():
        if not inspect.isclass(cls):
            continue
        for method, thing in inspect.getmembers(cls):
            function = getattr(thing, "__func__", getattr(thing, "fget", thing))
            if method.startswith("_") or method in HOOKS or not inspect.isfunction(function):
                continue
            if function.__module__.startswith("sksetvalued"):
                yield f"{name}.{method}"


def errors(name, checks):
    """Return the errors of a docstring among the checks, as numpydoc states them."""
    return [f"{code}: {text}" for code, text in validate(name)["errors"] if code in checks]


@pytest.mark.parametrize("name", OBJECTS)
def test_classes_and_functions(name):
    assert errors(name, SUMMARY | SECTIONS | PARAMETERS | {"EX01"}) == []


@pytest.mark.parametrize("module", MODULES)
def test_a_star_imports_all_that_is_public(module):
    namespace = {}
    exec(f"from {module} import *", namespace)
    public = {name.rsplit(".", 1)[1] for name in OBJECTS if name.rsplit(".", 1)[0] == module}
    assert public
    assert public <= namespace.keys()


@pytest.mark.parametrize("name", sorted(methods()))
def test_methods(name):
    """An override may leave the docstring, or its sections, to the method that it overrides."""
    checks = SUMMARY | SECTIONS | PARAMETERS
    owner, method = name.rsplit(".", 1)
    lineage = [cls for cls in OBJECTS[owner].__mro__ if method in vars(cls)]
    thing = vars(lineage[0])[method]
    if len(lineage) > 1:
        checks = checks - PARAMETERS
        if not thing.__doc__:
            checks = checks - {"GL08"}
    elif isinstance(thing, property):
        checks = checks - PARAMETERS
    assert errors(name, checks) == []


@pytest.mark.parametrize("cls", [AverageKClassifier, SparseTopClassifier, TopKClassifier])
def test_what_a_fit_sets_is_documented(cls):
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = cls(max_epochs=1).fit(X, np.arange(60) % 6)
    names = {n for n in vars(model) if n.endswith("_") and not n.startswith("_")}
    assert len(names) > 10
    assert names - set(re.findall(r"^(\w+) : ", inspect.getdoc(cls), re.M)) == set()


def test_the_reference_lists_every_public_object():
    page = (Path(__file__).parents[1] / "docs" / "api" / "index.rst").read_text(encoding="utf-8")
    module, listed = None, set()
    for line in page.splitlines():
        if match := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = match[1]
        elif re.fullmatch(r"   \w+", line):
            listed.add(f"{module}.{line.strip()}")
    assert listed == set(OBJECTS)
