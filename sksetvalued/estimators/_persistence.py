"""Saving and loading fitted estimators without running code."""

import os

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .. import training
from .._checks import decoded_path
from ..metrics._scorers import SCORERS
from ..rules import RULES
from ._compose import READ_WITH_SKOPS, ROOTS, dump_whole, rebuild_whole
from ._describe import ESTIMATORS, dump
from ._plug_in import PlugInClassifier
from ._restore import restore
from ._writing import write_whole

#: Data, without code of their own, of a fitted search.
SEARCH_TYPES = [
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.model_selection._split.StratifiedKFold",
]


def save(model, path):
    """Write a fitted model to a file that cannot run code when it is loaded.

    The tensors are stored as safetensors, all else as JSON in the header of the same file, with
    a checksum of both. The checksum finds damage, not forgery: a file says nothing about who
    wrote it. How your machine runs (`device`, `compile`, `callbacks`, most of `net_params`, the
    path in `weights`) is not stored. The state of the training is, with ``warm_start=True`` and
    after `partial_fit`: it goes on as it would have, in a file of about three times the size.
    Where parameters were changed since the fit, the network and the threshold stored are those
    that were fitted.

    Parameters
    ----------
    model : TopKClassifier, AverageKClassifier, SparseTopClassifier, PlugInClassifier or Pipeline
        Fitted. Steps of scikit-learn are those of a closed list, which the message for another
        one tells. For a search, save its ``best_estimator_``.
    path : path-like
        Written whole or not at all, through links, with the mode of the umask unless it is there.

    Raises
    ------
    TypeError
        An estimator or a step of another class.
    OSError
        If `path` cannot be written; a `FileNotFoundError` if its folder does not exist.
    ValueError
        A parameter that is code, such as a module of your own, or one of the loss that was
        changed since the fit and would change the scores; the message says what to do.

    See Also
    --------
    load : Read the file.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from sksetvalued import TopKClassifier, load, save
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = TopKClassifier(k=2, max_epochs=1).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(clf, os.path.join(folder, "clf.safetensors"))
    ...     loaded = load(os.path.join(folder, "clf.safetensors"))
    >>> np.array_equal(clf.predict_set(X), loaded.predict_set(X))
    True
    """
    own = type(model) is ESTIMATORS.get(type(model).__name__, (None,))[0]
    if not own and type(model) not in ROOTS:
        raise TypeError(
            f"save writes fitted estimators of {sorted(ESTIMATORS)}, PlugInClassifier and "
            f"Pipelines, got {type(model).__name__}. Save the `best_estimator_` of a search; or "
            f"write the model whole with skops.io.dump, {READ_WITH_SKOPS}."
        )
    check_is_fitted(model)
    write_whole(decoded_path(path), dump(model) if own else dump_whole(model))


def load(path, *, device=None, compile=False, net_params=None):
    """Read a fitted model written by :func:`save`. No code in the file is run.

    A file says what a model is and how it was trained. How it runs here is for you to say; a
    warning names what was set in training and is not restored.

    Parameters
    ----------
    path : path-like
    device : str, torch.device or None, default=None
        The parameter `device` of the estimator, in a Pipeline too; None is its default.
    compile : bool, default=False
        The parameter `compile` of the estimator.
    net_params : dict, optional
        Added to the parameter `net_params`, of which a file sets only numbers for the optimizer.

    Returns
    -------
    model : TopKClassifier, AverageKClassifier, SparseTopClassifier, PlugInClassifier or Pipeline

    Raises
    ------
    FileNotFoundError
    ValueError
        A file of another kind, of another version, truncated, changed, or that says more than
        a file may; or a `device` that is not here.

    Warns
    -----
    UserWarning
        If the estimator was trained with callbacks, `compile`, weights from a file or other
        `net_params`, or it or a step has `n_jobs` or `memory`, which are not restored; and, in a
        Pipeline, of another version of scikit-learn.

    See Also
    --------
    save : Write the file; has an example.

    Examples
    --------
    >>> from sksetvalued import load
    >>> load("elsewhere.safetensors")
    Traceback (most recent call last):
        ...
    FileNotFoundError: there is no file 'elsewhere.safetensors'.
    """
    name = repr(decoded_path(path))
    if not isinstance(compile, bool | np.bool_):
        raise TypeError(f"compile must be True or False, got {compile!r}.")
    if not os.path.isfile(path):
        raise FileNotFoundError(f"there is no file {name}.")
    here = {"compile": compile, "net_params": training.check_net_params(net_params)}
    here["device"] = "auto" if device is None else device
    training.resolve_device(here["device"])
    with open(path, "rb") as file:
        data = file.read()
    return restore(data, name, here, rebuild_whole)


def trusted_types():
    """Return the names of the types that a skops file of estimators of this package may hold.

    What they restore is checked as a file of :func:`load` is. The scorers of this package, and
    two types of scikit-learn that a fitted search holds and that skops does not know, are among
    them; the nets of skorch are not, as no such file needs them. Types of other steps, as of
    forests, have to be trusted by their names beside these:
    ``skops.io.get_untrusted_types(file=path)`` tells them.

    Returns
    -------
    names : list of str

    Examples
    --------
    >>> from sksetvalued import trusted_types
    >>> "sksetvalued.TopKClassifier" in trusted_types()
    True

    A Pipeline through skops, and back with these types trusted only::

        import skops.io

        skops.io.dump(pipeline, "pipeline.skops")
        again = skops.io.load("pipeline.skops", trusted=sksetvalued.trusted_types())
    """
    estimators = [*(cls for cls, _ in ESTIMATORS.values()), PlugInClassifier]
    classes = [*estimators, *RULES.values(), *SCORERS]
    return sorted(f"{cls.__module__}.{cls.__qualname__}" for cls in classes) + SEARCH_TYPES
