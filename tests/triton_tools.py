"""Kernels on a GPU or else in Triton's interpreter, and compiled for devices that are not there.

The interpreter has to be chosen before Triton is imported: without a GPU one test of each file
runs the others again, in a process of its own. It takes a millisecond for what takes a GPU a
microsecond: cases marked slow run on a GPU and in `make test-slow`.
"""

import os
import re
import subprocess
import sys

import pytest
import torch

triton = pytest.importorskip("triton")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
IN_INTERPRETER_SECONDS = {"not slow": 280, "slow": 1500}
slow = pytest.mark.slow
# The devices that most people have, and those before them.
on_capabilities = pytest.mark.parametrize("capability", [90, pytest.param(80, marks=slow)])
quick_and_slow = pytest.mark.parametrize("cases", ["not slow", pytest.param("slow", marks=slow)])
on_device = pytest.mark.skipif(
    not INTERPRETED and not torch.cuda.is_available(),
    reason="no GPU; run again in the interpreter by test_laws_hold_in_the_interpreter",
)
compiles = pytest.mark.skipif(INTERPRETED, reason="the interpreter does not compile")


def run_in_interpreter(file, cases, at_least):
    """Run the tests of a file in the interpreter; so many must pass, and none may fail."""
    if INTERPRETED:
        pytest.skip("this is the interpreter")
    command = [sys.executable, "-m", "pytest", file, "-q", "-n", "0", "-m", cases]
    run = subprocess.run(
        command,
        # On a processor, too, the kernels compiled for it would be preferred.
        env={**os.environ, "TRITON_INTERPRET": "1", "SKSETVALUED_KERNELS": "0"},
        capture_output=True,
        text=True,
        timeout=IN_INTERPRETER_SECONDS[cases],
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert int(re.search(r"(\d+) passed", run.stdout)[1]) >= at_least, run.stdout


def compile_kernel(kernel, types, constants, capability, settings):
    """Return a kernel compiled to machine code: `types` are those of the other arguments."""
    names = [name for name in kernel.arg_names if name not in constants]
    given = dict(zip(names, types, strict=True))
    signature = {name: given.get(name, "constexpr") for name in kernel.arg_names}
    source = triton.compiler.ASTSource(kernel, signature, constexprs=constants)
    target = triton.backends.compiler.GPUTarget("cuda", capability, 32)
    compiled = triton.compile(source, target=target, options=settings)
    assert compiled.asm["cubin"][:4] == b"\x7fELF"
    return compiled
