"""Kernels on a GPU or else in Triton's interpreter, and compiled for devices that are not there.

The interpreter has to be chosen before Triton is imported: without a GPU one test
(test_interpreter.py) runs the others in a process of its own. It takes a millisecond for
what takes a GPU a microsecond: cases marked slow run on a GPU and in `make test-slow`.
"""

import inspect
import os

import pytest
import torch

triton = pytest.importorskip("triton")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
slow = pytest.mark.slow
# The devices that most people have, and those before them.
on_capabilities = pytest.mark.parametrize("capability", [90, pytest.param(80, marks=slow)])
on_device = pytest.mark.skipif(
    not INTERPRETED and not torch.cuda.is_available(),
    reason="no GPU; run in the interpreter by test_interpreter.py",
)
compiles = pytest.mark.skipif(INTERPRETED, reason="the interpreter does not compile")


def remember_types():
    """Keep the interpreter from making the same table of types for each result."""
    from triton.runtime import interpreter

    find, found = getattr(interpreter, "_get_np_dtype", None), {}

    def find_once(dtype):
        name = dtype.scalar.name
        if name not in found:
            found[name] = find(dtype)
        return found[name]

    if find is not None:
        interpreter._get_np_dtype = find_once


def patch_once():
    """Keep the interpreter from looking for what it has to patch where it has patched already.

    It does so whenever a kernel calls a function, which takes a third of its time. Versions of
    Triton that do it in another way are left alone.
    """
    from triton.runtime import interpreter

    patch = getattr(interpreter, "_patch_builtin", None)
    if patch is None:
        return
    is_builtin, first = triton.language.core.is_builtin, {}

    def patch_the_rest(namespace, *args):
        if namespace not in first:
            members = inspect.getmembers(namespace)
            first[namespace] = next((name for name, one in members if is_builtin(one)), None)
        name = first[namespace]
        if name is not None and is_builtin(getattr(namespace, name)):
            patch(namespace, *args)

    interpreter._patch_builtin = patch_the_rest


if INTERPRETED:
    patch_once()
    remember_types()


def compile_kernel(kernel, types, constants, capability, settings):
    """Return a kernel compiled to machine code: `types` are those of the other arguments."""
    from sksetvalued.operators._triton_rows import FUSED

    names = [name for name in kernel.arg_names if name not in constants]
    given = dict(zip(names, types, strict=True))
    signature = {name: given.get(name, "constexpr") for name in kernel.arg_names}
    source = triton.compiler.ASTSource(kernel, signature, constexprs=constants)
    target = triton.backends.compiler.GPUTarget("cuda", capability, 32)
    compiled = triton.compile(source, target=target, options=FUSED | settings)
    assert compiled.asm["cubin"][:4] == b"\x7fELF"
    return compiled
