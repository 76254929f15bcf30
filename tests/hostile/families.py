"""All families of cases by name, and the share of each among a great number."""

from . import files, inputs, operators, sets

FAMILIES = {**operators.CASES, **sets.CASES, **inputs.CASES, **files.CASES}

#: Cases of each family among 1000; the slow ones are fewer.
SHARES = {
    "operators": 240,
    "losses": 240,
    "rules": 240,
    "metrics": 240,
    "predictions": 16,
    "fits": 10,
    "plug_ins": 4,
    "files": 10,
}


def prepare():
    """Fit the models and write the files that cases are about."""
    inputs.models()
    files.tripwire()
