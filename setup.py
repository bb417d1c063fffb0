"""The compiled kernels: one extension for every Python from 3.11 on. The rest is pyproject.toml.

Where no C compiler is found the build goes on without them: their twins in Python do the work.
"""

from pathlib import Path

from setuptools import Extension, setup

sources = sorted(Path("native").glob("*.c"))
headers = sorted(Path("native").glob("*.h"))

setup(
    ext_modules=[
        Extension(
            "lakelog._native",
            sources=[str(path) for path in sources],
            depends=[str(path) for path in headers],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            extra_compile_args=["-std=c11", "-O3", "-fvisibility=hidden", "-Wall", "-Wextra"],
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
