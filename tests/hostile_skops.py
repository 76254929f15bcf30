"""Hostile files of skops: what can stand in their schema."""

import io
import itertools
import json
import operator
import traceback
import zipfile
from pathlib import Path

from hostile_files import HOSTILE, at

import sksetvalued

SCHEMA = "schema.json"
PACKAGE = str(Path(sksetvalued.__file__).parent)


def schema_of(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return json.loads(archive.read(SCHEMA))


def with_schema(text, content):
    """Return a file with another schema."""
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(changed, "w") as target:
        for name in source.namelist():
            target.writestr(name, text if name == SCHEMA else source.read(name))
    return changed.getvalue()


def node(loader, path, content=None, **more):
    module, _, name = path.rpartition(".")
    described = {"__class__": name, "__module__": module, "__loader__": loader, **more}
    return described if content is None else {**described, "content": content}


def of_data(value):
    return node("JsonNode", "builtins.str", json.dumps(value), is_json=True)


def of_items(**items):
    """Return the node of a dictionary whose keys are strings."""
    types = [node("TypeNode", "builtins.str") for _ in items]
    types = node("ListNode", "builtins.list", types)
    return node("DictNode", "builtins.dict", items, key_types=types)


COMMAND = node("TupleNode", "builtins.tuple", [of_data("touch tripped")])
SYSTEM = node("FunctionNode", "os.system")
PARTS = {"args": COMMAND, "kwds": of_items(), "namespace": of_items()}
OURS = "sksetvalued.AverageKClassifier"

#: What is written in place of each node of a schema.
NODES = [
    *(SYSTEM, node("TypeNode", "os.system"), node("TypeNode", "subprocess.Popen")),
    *(node("FunctionNode", name) for name in ("builtins.exec", "numpy.exp", "numpy.load")),
    *(node("FunctionNode", name) for name in ("wave.open", "sksetvalued.load", "absent.name")),
    node("PartialNode", "functools.partial", {"func": SYSTEM, **PARTS}),
    node("PartialNode", "functools.partial", {"func": node("FunctionNode", "numpy.exp"), **PARTS}),
    node("OperatorFuncNode", "operator.methodcaller", attrs=COMMAND),
    *(node("ConstructorFromReduceNode", name, COMMAND) for name in ("os.system", OURS)),
    node("ConstructorFromReduceNode", "sksetvalued.PlugInClassifier", COMMAND),
    node("ConstructorFromReduceNode", "sksetvalued.rules.TopK", COMMAND),
    node("MethodNode", OURS, {"func": "fit", "obj": node("ObjectNode", OURS)}),
    node("MethodNode", OURS, {"func": "fit", "obj": SYSTEM}),
    *(node("ObjectNode", name) for name in (OURS, "skorch.net.NeuralNet", "torch.nn.Linear")),
    node("ObjectNode", OURS, of_items(net_=of_data(1))),
    node("ObjectNode", OURS, of_items(sksetvalued_file=of_data("x" * 1000))),
    node("ObjectNode", "sksetvalued.PlugInClassifier", of_items(predict_set=SYSTEM)),
    node(
        "ObjectNode",
        "sksetvalued.PlugInClassifier",
        of_items(predict_set=node("FunctionNode", "numpy.exp")),
    ),
    node("ObjectNode", "sksetvalued.rules.AverageK", of_items(threshold_=of_data([]))),
    node("ObjectNode", "sksetvalued.estimators._plain_state.Attributes", of_items()),
    node("DictNode", "sksetvalued.estimators._plain_state.Attributes", {}, key_types=of_data([])),
    node("CachedNode", "builtins.dict", __id__=1),
    node("NdArrayNode", "numpy.ndarray", file="../../etc/passwd", type="numpy"),
    node("NdArrayNode", "numpy.ndarray", type="json", shape=of_data([2**40]), content=[]),
    node("BytesNode", "builtins.bytes", file="/etc/passwd"),
    *({}, {"__loader__": "ObjectNode"}, node("AbsentNode", "os.system")),
    *map(of_data, (value for value in HOSTILE if value != "\ud800")),
    node("JsonNode", "os.system", "[" * 50_000),
]
#: Nodes that say one thing, and are replaced whole.
LEAVES = {"JsonNode", "TypeNode"}


def nodes_of(value, path=()):
    """Yield the path of each node of a schema; of long lists, of the first ones."""
    if isinstance(value, dict) and "__loader__" in value:
        yield path
    items = value.items() if isinstance(value, dict) else ()
    items = list(enumerate(value[:3])) if isinstance(value, list) else items
    for key, item in items:
        yield from nodes_of(item, (*path, key))


def changes(schema):
    """Yield a name and a function that makes a changed text, for each change of the catalogue."""
    text = json.dumps(schema)

    def changed(path, change):
        copied = {"root": json.loads(text)}
        change(at(copied, ("root", *path[:-1])) if path else copied, path[-1] if path else "root")
        return json.dumps(copied["root"])

    for path in nodes_of(schema):
        for i, value in enumerate(NODES):
            yield (
                f"{path} = node {i}",
                lambda p=path, v=value: changed(p, lambda d, k: operator.setitem(d, k, v)),
            )
        fields = () if at(schema, path)["__loader__"] in LEAVES else at(schema, path)
        for field, (i, value) in itertools.product(fields, enumerate(HOSTILE)):
            yield (
                f"{path}.{field} = value {i}",
                lambda p=(*path, field), v=value: changed(
                    p, lambda d, k: operator.setitem(d, k, v)
                ),
            )
        for field in at(schema, path):
            yield (
                f"{path} without {field}",
                lambda p=(*path, field): changed(p, lambda d, k: operator.delitem(d, k)),
            )


def read(path):
    """Return what a file of skops holds, with the types of the package trusted.

    Raises
    ------
    ValueError
        What skops raises at a schema that is none, unless it was raised by code of the package:
        this has to refuse by a ValueError or TypeError of its own.
    """
    import skops.io

    try:
        return skops.io.load(path, trusted=sksetvalued.trusted_types())
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = any(frame.filename.startswith(PACKAGE) for frame in frames)
        if ours and not isinstance(error, ValueError | TypeError):
            raise
        raise ValueError("refused by skops") from error
