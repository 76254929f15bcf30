"""Build the kernels for the processor; all else about the package is in pyproject.toml."""

import os
import sys
import sysconfig
import zlib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CCompilerError, CompileError, PlatformError

folder = Path("sksetvalued", "operators", "kernels")
# By which operators/_dispatch.py finds that the kernels were compiled from other sources.
checksum = zlib.crc32(b"".join(path.read_bytes() for path in sorted(folder.glob("*.?pp"))))

WITHOUT = (
    "sksetvalued is built without its compiled kernels: torch computes the losses and operators, "
    "several times slower. For the kernels install GCC or Clang and build again; for Windows "
    "there are none."
)
# A Python without the global lock has no stable ABI; it takes the lock up again for the kernels.
stable = not sysconfig.get_config_var("Py_GIL_DISABLED")


class BuildKernels(build_ext):
    """Say what is missing where the kernels cannot be compiled."""

    def build_extension(self, extension):
        try:
            # Microsoft's compiler lacks the vector types; GCC there misaligns them on the stack.
            if sys.platform == "win32":
                raise PlatformError("the kernels are not for Windows")
            super().build_extension(extension)
        except (CCompilerError, CompileError, PlatformError) as error:
            raise CompileError(f"{error}\n{WITHOUT}") from error


kernels = Extension(
    "sksetvalued.operators._kernels",
    sources=[str(folder / "kernels.cpp"), str(folder / "module.cpp")],
    depends=sorted(str(path) for path in folder.glob("*.hpp")),
    define_macros=[("CHECKSUM", f'"{checksum:08x}"')],
    language="c++",
    extra_compile_args=[
        "-std=c++17",
        "-O3",
        "-g0",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-Wno-psabi",
    ],
    py_limited_api=stable,
    # Without a C++ compiler the package is installed all the same; torch does the work. Wheels
    # for others to install must have the kernels.
    optional=os.environ.get("SKSETVALUED_KERNELS") != "required",
)

setup(
    ext_modules=[kernels],
    cmdclass={"build_ext": BuildKernels},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if stable else {},
)
