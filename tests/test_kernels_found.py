"""Which kernels an import finds, in copies of the package imported by processes of their own."""

import os
import shutil
from pathlib import Path

import pytest
from fresh import run_code

import sksetvalued


@pytest.fixture
def import_copy(tmp_path):
    """Import a copy of the operators without compiled kernels, or with a file in their place."""
    package = Path(sksetvalued.__file__).parent
    ignored = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    copy = tmp_path / "sksetvalued"
    shutil.copytree(package / "operators", copy / "operators", ignore=ignored)
    for module in ("_checks.py", "_randomness.py", "_warnings.py"):  # nothing else is imported
        shutil.copy(package / module, copy)
    (copy / "__init__.py").touch()

    def run(content=None, **environment):
        if content is not None:
            (copy / "operators" / "_kernels.abi3.so").write_bytes(content)
        code = "from sksetvalued.operators import instruction_set as i; print(i())"
        return run_code(code, tmp_path, **environment)

    return run


def test_without_kernels_there_is_no_instruction_set(import_copy):
    assert import_copy(SKSETVALUED_KERNELS="1").stdout.strip() == "None"


@pytest.mark.skipif(os.name == "nt", reason="libraries have another suffix")
def test_kernels_that_cannot_be_loaded_are_an_error_unless_switched_off(import_copy):
    broken = import_copy(b"not a library", SKSETVALUED_KERNELS="1")
    assert broken.returncode != 0
    assert "ImportError" in broken.stderr
    assert "_kernels.abi3.so" in broken.stderr
    assert import_copy(SKSETVALUED_KERNELS="0").stdout.strip() == "None"
