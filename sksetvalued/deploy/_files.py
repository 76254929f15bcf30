"""Files of fitted classifiers for torch.export and ONNX."""

import importlib.util
import io
import json
import os
import tempfile

import torch
from sklearn.utils.validation import check_is_fitted

from .._arrays import always_on_the_processor, label_kinds
from .._checks import decoded_path
from .._predict import unwrap
from .._version import __version__
from .._warnings import warn_caller
from ..estimators import PlugInClassifier, SparseTopClassifier
from ..estimators._deep import DeepEstimator
from ..estimators._writing import write_whole
from ..networks._sources import is_built_in
from ._module import dynamic_shapes, example_batch, exportable, refuse, to_torch, traced
from ._pipelines import check_samples, has_network, has_proba, onnx_graph, pipeline_graph

SUFFIXES = (".pt2", ".onnx")
#: Bytes of weights that are written into one ONNX file; more stand in files beside it.
LARGEST_ONNX = 1_900_000_000
#: Name of the document in a ``.pt2`` file.
DOCUMENT = "sksetvalued.json"


@always_on_the_processor
def export(model, path, *, dtype=None, X=None):
    """Write a fitted estimator to a file that programs without this package can run.

    The graph in the file leads from a raw batch `X` of any number of samples to `sets`, a mask of
    shape (n_samples, n_classes), and `scores`; see :func:`to_torch` for what is inside and how
    near to a threshold the sets equal those of `predict_set`.

    Parameters
    ----------
    model : TopKClassifier, AverageKClassifier, SparseTopClassifier, PlugInClassifier or Pipeline
        Fitted; or a search around one. A Pipeline of several steps, and a PlugInClassifier around
        a classifier of scikit-learn, need `X`.
    path : path-like
        The suffix chooses the format: ``.onnx``, for ONNX Runtime (needs the
        extra ``onnx`` of sksetvalued), or ``.pt2``, for ``torch.export.load``.
    dtype : {"float32", "float64"}, default=None
        What the network computes in, and the type of the rows of a table; see :func:`to_torch`.
        Not with `X`, whose type decides.
    X : array-like or DataFrame, default=None
        Some samples, needed for a Pipeline with several steps and for a
        :class:`~sksetvalued.PlugInClassifier` around a classifier of scikit-learn: skl2onnx
        writes these, and reads from `X` the types of the inputs. ``.onnx`` only. Where ONNX
        Runtime is installed, the sets of `X` are compared with those of `predict_set`, and the
        scores with those of the classifier. Columns of a DataFrame are inputs of their own.

    Raises
    ------
    TypeError, ValueError
        What cannot be exported, such as labels that are dates, is refused before any work; the
        message says what to do. Nothing is written where more than one in a hundred of the sets
        or scores of `X` are others.
    ImportError
        ``.onnx`` without the packages that write it.
    FileNotFoundError
        The folder of `path` does not exist.
    OSError
        With the path, when it cannot be written: what stood there before stays.

    See Also
    --------
    to_torch : The module that is written.
    save : A file for this package, from which training can go on.

    Notes
    -----
    The class labels, the classes of the estimator and of its rule, and the version stand in the
    metadata: in an ONNX file as ``session.get_modelmeta().custom_metadata_map``, with the labels
    as JSON under "classes"; in a ``.pt2`` file as the JSON document "sksetvalued.json" among its
    extra files.

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
    path = decoded_path(path)
    suffix = os.path.splitext(path)[1]
    if suffix not in SUFFIXES:
        raise ValueError(f"path must end in .onnx or .pt2, which is the format, got {path!r}.")
    if suffix == ".onnx":
        _check_packages("onnx", "onnxscript")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(
            f"there is no folder {folder!r}, where {path!r} was to be written; make it first."
        )
    if X is not None:
        if dtype is not None:
            raise ValueError(
                f"dtype={dtype!r} was given beside X, whose type decides: leave dtype None, and "
                "give X.astype('float32') for single precision."
            )
        _write_pipeline(model, path, X)
        return
    inner, rule = exportable(model)
    _check_labels(inner)
    if suffix == ".onnx" and dtype is None and _holds_bfloat16(inner):
        dtype = "float32"
        warn_caller(
            "The backbone holds weights of bfloat16, which ONNX Runtime cannot compute with on a "
            "CPU: in the file they are of single precision, and scores near a threshold may fall "
            "on its other side.",
        )
    module = to_torch(model, dtype=dtype)
    write = _write_pt2 if suffix == ".pt2" else _write_onnx
    rule = getattr(inner, "rule_", None) if rule is None else rule
    description = _describe(unwrap(model)[0], inner, rule)
    try:
        write(module, example_batch(inner, module), path, description)
    except OSError:
        raise
    except Exception as error:
        if not is_built_in(inner._network_params["backbone"]):
            error.add_note(
                f"raised while torch.export traced a network with backbone="
                f"{type(inner.net_.bare_module.backbone).__name__}. It cannot trace packed "
                "sequences, nor Python that goes by the values of tensors: let the backbone index "
                "outputs by lengths, and use torch.where; or keep the model by joblib."
            )
        raise


def _write_pipeline(model, path, X):
    if not path.endswith(".onnx"):
        raise ValueError(
            f"X={type(X).__name__} was given, but only .onnx files hold what is outside of torch: "
            f"leave it None, or write to a path that ends in .onnx, not {path!r}."
        )
    _check_packages("skl2onnx")
    check_is_fitted(model)
    last = unwrap(model)[0]
    if not isinstance(last, DeepEstimator | PlugInClassifier):
        refuse(last)
    check_is_fitted(last)
    _check_labels(last)
    graph = pipeline_graph(model, check_samples(X))
    for key, value in _describe(last, last, getattr(last, "rule_", None)).items():
        graph.metadata_props.add(key=key, value=value)
    write_whole(path, graph.SerializeToString())


def _check_labels(model):
    """Raise unless the class labels are such as JSON can hold."""
    kinds = label_kinds(model.classes_)
    if not kinds <= {"numbers", "strings"}:
        raise ValueError(
            f"classes_ holds {' and '.join(sorted(kinds))}, such as {model.classes_[0]!r}, where "
            "an exported file holds numbers or strings: fit on np.asarray(y).astype(str)."
        )


def _describe(given, model, rule):
    """Return what a reader of the file should know, as strings.

    `model` is the classifier inside of the one that was given, which has the classes and scores.
    """
    return {
        "sksetvalued": __version__,
        "estimator": type(given).__name__,
        "classes": json.dumps(model.classes_.tolist()),
        "rule": f"size={model.size!r}" if rule is None else _describe_rule(rule),
        "scores": _scale(model),
    }


def _scale(model):
    """Return what the scores are that a graph gives beside the sets."""
    if isinstance(model, SparseTopClassifier):
        return "decision function"
    if isinstance(model, PlugInClassifier) and not has_network(model):
        return "probabilities" if has_proba(model) else "decision values"
    return "log-probabilities"


def _describe_rule(rule):
    """Return the parameters of a rule; the prior, long with many classes, is in the graph."""
    params = {k: v for k, v in rule.get_params().items() if k not in ("prior", "log_scores")}
    return f"{type(rule).__name__}({', '.join(f'{k}={v!r}' for k, v in sorted(params.items()))})"


def _write_pt2(module, batch, path, description):
    n_samples = torch.export.Dim("n_samples", min=1)
    program = traced(module, batch, (dynamic_shapes(batch, n_samples),))
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={DOCUMENT: json.dumps(description)})
    write_whole(path, file.getvalue())


def _write_onnx(module, batch, path, description):
    names = list(batch) if isinstance(batch, dict) else ["X"]
    program = onnx_graph(module, batch, input_names=names, output_names=["sets", "scores"])
    program.model.metadata_props.update(description)
    if sum(tensor.nbytes for tensor in module.state_dict().values()) < LARGEST_ONNX:
        write_whole(path, program.model_proto.SerializeToString())
    else:
        _save_in_parts(program, path)


def _save_in_parts(program, path):
    """Write a graph and its weights beside it, once both can be written whole."""
    folder, name = os.path.split(os.path.realpath(path))
    try:
        with tempfile.TemporaryDirectory(dir=folder) as new:
            program.save(os.path.join(new, name))
            for part in sorted(os.listdir(new), key=lambda part: part == name):
                os.replace(os.path.join(new, part), os.path.join(folder, part))
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _holds_bfloat16(model):
    tensors = model.net_.bare_module.state_dict().values()
    return any(tensor.dtype == torch.bfloat16 for tensor in tensors)


def _check_packages(*names):
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise ImportError(
                f"writing this .onnx file needs {name!r}, which is not installed: pip install "
                f"{' '.join(names)}."
            )
