"""Test the installed package, from a wheel, where no compiler is found: its kernels above all.

``python .ci/test_wheel.py ROOT`` copies the tests out of the tree ROOT, whose package would else
be taken. Microsoft's compiler cannot compile the kernels: on Windows there are none.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "cl")
#: What the kernels compute, and who computes.
TESTS = (
    "test_*_kernels.py",
    "test_smoothed_cpu.py",
    "test_compiled_calls.py",
    "test_projection.py",
)


def environment():
    """Return the environment without the folders in which a compiler is found."""
    folders = os.environ["PATH"].split(os.pathsep)
    bare = [f for f in folders if not any(shutil.which(c, path=f) for c in COMPILERS)]
    bare.append(os.path.dirname(sys.executable))
    kept = {k: v for k, v in os.environ.items() if k not in ("CC", "CXX", "PYTHONPATH")}
    return kept | {"PATH": os.pathsep.join(bare), "OMP_NUM_THREADS": "1"}


def main(root):
    with tempfile.TemporaryDirectory() as folder:
        tests = shutil.copytree(root / "tests", Path(folder, "tests"))
        shutil.copytree(root / "benchmarks", Path(folder, "benchmarks"))
        check = "from sksetvalued.operators import instruction_set as i; import sksetvalued as s; "
        check += "print(s.__file__, i()); assert 'site-packages' in s.__file__; "
        check += f"assert (i() is None) == {os.name == 'nt'}"
        files = [str(path) for name in TESTS for path in sorted(tests.glob(name))]
        for arguments in (["-c", check], ["-m", "pytest", "-q", "-p", "no:cacheprovider", *files]):
            command = [sys.executable, *arguments]
            subprocess.run(command, cwd=folder, env=environment(), check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
