"""Build the kernels for the processor; all else about the package is in pyproject.toml."""

from pathlib import Path

from setuptools import Extension, setup

folder = Path("sksetvalued", "operators", "kernels")

kernels = Extension(
    "sksetvalued.operators._kernels",
    sources=[str(folder / "kernels.cpp"), str(folder / "module.cpp")],
    depends=sorted(str(path) for path in folder.glob("*.hpp")),
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
    # Without a C++ compiler the package is installed all the same; torch and NumPy do the work.
    optional=True,
)

setup(ext_modules=[kernels], options={"bdist_wheel": {"py_limited_api": "cp311"}})
