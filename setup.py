"""Build the kernels for the processor; all else about the package is in pyproject.toml."""

import zlib
from pathlib import Path

from setuptools import Extension, setup

folder = Path("sksetvalued", "operators", "kernels")
# By which operators/_dispatch.py finds that the kernels were compiled from other sources.
checksum = zlib.crc32(b"".join(path.read_bytes() for path in sorted(folder.glob("*.?pp"))))

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
    py_limited_api=True,
    # Without a C++ compiler the package is installed all the same; torch does the work.
    optional=True,
)

setup(ext_modules=[kernels], options={"bdist_wheel": {"py_limited_api": "cp311"}})
