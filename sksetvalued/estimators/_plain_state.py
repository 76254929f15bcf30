"""States of fitted estimators without code, for libraries that write objects by their state."""

import copyreg

import numpy as np

from ._allowed import names_weights
from ._describe import ESTIMATORS, dump
from ._restore import restore

#: What a plain state holds: the bytes of a file of `save`.
FILE = "sksetvalued_file"
#: What scikit-learn keeps of `set_fit_request` and the like.
ROUTING = {"_metadata_request"}


class Attributes(dict):
    """The attributes of an estimator, code and all, as pickles and copies hold them.

    A type of its own: files that trust no others cannot set attributes.
    """


def _without_paths(state):
    """Return the state of an estimator that is not fitted; raise if a fit would open a path."""
    weights = state.get("weights")
    if not names_weights(weights):
        raise ValueError(
            f"weights={weights!r} is a path, which no file may name: its reader would open it in "
            "fit. Leave it None in files, and set it by set_params(weights=...) after loading."
        )
    return state


class PlainState:
    """Give an estimator the state that `save` writes; pickles and copies keep the attributes.

    skops takes the state of an object to a file and back. That of a net of skorch would hold code,
    which its reader must trust; this one is checked as a file of `save` is.

    Parameters
    ----------
    rule : class, optional
        The rule that the estimator holds; only classes that give it can be saved.
    """

    def __init_subclass__(cls, rule=None, **kwargs):
        super().__init_subclass__(**kwargs)
        if rule is not None:
            ESTIMATORS[cls.__name__] = cls, rule

    def __getstate__(self):
        if not hasattr(self, "net_"):
            return _without_paths(super().__getstate__())
        cls = type(self)
        if cls is not ESTIMATORS.get(cls.__name__, (None,))[0]:
            raise TypeError(
                f"a fitted {cls.__module__}.{cls.__name__} cannot be written without code, as its "
                "class is none of sksetvalued: pickle it, for those who trust you."
            )
        return {FILE: np.frombuffer(dump(self), np.uint8).copy()}

    def __setstate__(self, state):
        if type(state) is Attributes:
            super().__setstate__(dict(state))
        elif isinstance(state, dict) and state.keys() == {FILE}:
            self._take_file(state[FILE])
        elif isinstance(state, dict) and state.keys() - ROUTING == set(self._get_param_names()):
            super().__setstate__(_without_paths(state))
        else:
            raise ValueError(f"the state of a {type(self).__name__} is malformed.")

    def _take_file(self, data):
        name = f"the state of a {type(self).__name__}"
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 1:
            raise ValueError(f"{name} is malformed.")
        here = {"compile": False, "device": "auto", "net_params": {}}
        model = restore(data.tobytes(), name, here)
        if type(model) is not type(self):
            raise ValueError(f"{name} describes a {type(model).__name__}.")
        vars(self).update(vars(model))

    def __reduce__(self):
        return copyreg.__newobj__, (type(self),), Attributes(super().__getstate__())

    def __reduce_ex__(self, protocol):
        return self.__reduce__()
