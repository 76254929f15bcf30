"""Files of fitted classifiers for torch.export and ONNX."""

import json
import os

import torch

from .._version import __version__
from ..estimators import SparseTopClassifier
from ._module import example_batch, exportable, to_torch

SUFFIXES = (".pt2", ".onnx")
#: Name of the document in a ``.pt2`` file.
DOCUMENT = "sksetvalued.json"


def export(model, path, *, dtype=None):
    """Write a fitted estimator to a file that programs without this package can run.

    The graph in the file leads from a raw batch `X` of any number of samples to `sets`, a mask of
    shape (n_samples, n_classes), and `scores`; see :func:`to_torch` for what is inside and how
    near to a threshold the sets equal those of `predict_set`.

    Parameters
    ----------
    model : TopKClassifier, AverageKClassifier, SparseTopClassifier or PlugInClassifier
        Fitted, the last around one of the others; or a search around one.
    path : path-like
        The suffix chooses the format: ``.onnx``, for ONNX Runtime (install
        ``sksetvalued[onnx]``), or ``.pt2``, for ``torch.export.load``.
    dtype : {"float32", "float64"}, default=None
        What the network computes in, and the type of the rows of a table; see :func:`to_torch`.

    Raises
    ------
    TypeError, ValueError
        What cannot be exported is refused before any work; the message says what to do.
    ImportError
        ``.onnx`` without the packages that write it.
    FileNotFoundError
        The folder of `path` does not exist.

    See Also
    --------
    to_torch : The module that is written.
    save : A file for this package, from which training can go on.

    Notes
    -----
    The class labels, the rule and the version stand in the metadata: in an ONNX file as
    ``session.get_modelmeta().custom_metadata_map``, with the labels as JSON under "classes"; in a
    ``.pt2`` file as the JSON document "sksetvalued.json" among its extra files.

    Examples
    --------
    >>> import os, tempfile
    >>> import torch
    >>> from sklearn.datasets import load_iris
    >>> from sksetvalued import TopKClassifier, export
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = TopKClassifier(k=2, max_epochs=1, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "iris.pt2")
    ...     export(clf, path)
    ...     module = torch.export.load(path).module()
    >>> sets, log_proba = module(torch.from_numpy(X[:5]))
    >>> bool((sets.numpy() == clf.predict_set(X[:5])).all())
    True
    """
    path = os.fspath(path)
    suffix = os.path.splitext(path)[1]
    if suffix not in SUFFIXES:
        raise ValueError(f"path must end in .onnx or .pt2, which is the format, got {path!r}.")
    if suffix == ".onnx":
        _check_onnx()
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"there is no folder {folder!r}, where {path!r} was to be written; make it first."
        )
    module = to_torch(model, dtype=dtype)
    write = _write_pt2 if suffix == ".pt2" else _write_onnx
    write(module, example_batch(model, module), path, _describe(model))


def _describe(model):
    """Return what a reader of the file should know, as strings."""
    model, rule = exportable(model)
    rule = getattr(model, "rule_", None) if rule is None else rule
    return {
        "sksetvalued": __version__,
        "estimator": type(model).__name__,
        "classes": json.dumps(model.classes_.tolist()),
        "rule": f"size={model.size!r}" if rule is None else _describe_rule(rule),
        "scores": "scores" if isinstance(model, SparseTopClassifier) else "log-probabilities",
    }


def _describe_rule(rule):
    """Return the parameters of a rule; the prior, long with many classes, is in the graph."""
    params = {k: v for k, v in rule.get_params().items() if k not in ("prior", "log_scores")}
    return f"{type(rule).__name__}({', '.join(f'{k}={v!r}' for k, v in sorted(params.items()))})"


def _write_pt2(module, batch, path, description):
    n_samples = torch.export.Dim("n_samples", min=1)
    program = torch.export.export(module, (batch,), dynamic_shapes=({0: n_samples},))
    torch.export.save(program, path, extra_files={DOCUMENT: json.dumps(description)})


def _write_onnx(module, batch, path, description):
    exported = torch.onnx.export(
        module,
        (batch,),
        dynamo=True,
        dynamic_shapes=({0: "n_samples"},),
        input_names=["X"],
        output_names=["sets", "scores"],
        verbose=False,
    )
    exported.model.metadata_props.update(description)
    exported.save(path)


def _check_onnx():
    try:
        import onnx  # noqa: F401  # an extra
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"writing .onnx files needs {error.name!r}: pip install 'sksetvalued[onnx]', or "
            "export to a .pt2 file."
        ) from error
