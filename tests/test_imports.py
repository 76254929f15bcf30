"""What the modules of the package import, and where."""

import ast
import importlib.util
from graphlib import TopologicalSorter
from pathlib import Path

from fresh import run_code

PACKAGE = Path(__file__).parents[1] / "sksetvalued"
PATHS = {
    str(path.relative_to(PACKAGE.parent))[:-3].replace("/", ".").removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}
#: What functions import, and why: it is slow to import, optional, or starts a compiler.
INSIDE_FUNCTIONS = {
    "PIL": "for images only",
    "_outside_graphs": "slow, it imports the compiler of torch",
    "fcntl": "not on every system",
    "matplotlib": "optional",
    "onnx": "optional",
    "pandas": "optional",
    "sklearn.compose": "slow",
    "torch._dynamo": "slow",
    "torchvision": "slow",
    "tqdm": "for verbose fits only",
    "triton": "optional",
}


def imports(module):
    """Yield the node and the name of what a module imports, anywhere in it."""
    path = PATHS[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            source = importlib.util.resolve_name(source, package)
            yield from ((node, f"{source}.{alias.name}") for alias in node.names)


def module_of(name):
    """Return the module of the package that a name belongs to, if there is one."""
    return next((m for m in (name, name.rpartition(".")[0]) if m in PATHS), None)


def test_there_is_no_circle():
    graph = {m: {module_of(name) for _, name in imports(m)} - {None, m} for m in PATHS}
    TopologicalSorter(graph).prepare()


def test_imports_stand_at_the_top():
    inside = {(m, name) for m in PATHS for node, name in imports(m) if node.col_offset}
    needless = {(m, n) for m, n in inside if not any(word in n for word in INSIDE_FUNCTIONS)}
    assert not needless
    assert len(inside) <= 25


def test_importing_the_package_leaves_out_what_is_slow_or_optional():
    slow = set(INSIDE_FUNCTIONS) - {"fcntl", "pandas", "tqdm"} | {"sklearn.linear_model"}
    code = "import sys, torch; before = set(sys.modules); import sksetvalued; "
    code += f"sys.exit(str({slow} & (set(sys.modules) - before)))"
    assert run_code(code).stderr.strip() == "set()"
