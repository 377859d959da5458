"""Compiles the core of the heap backend with mypyc; all else is in pyproject.toml.

Without a C compiler, or with PYFLINKSTATE_PURE=1, the same files are installed as they are.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, str(Path(__file__).parent))

from pyflinkstate.backends.compiled import ALL_COMPILED


def forget_compiled():
    """Delete what was compiled in place: it would be taken for the sources beside it."""
    for pattern in ("pyflinkstate/**/*.so", "*__mypyc*.so"):
        for path in Path(__file__).parent.glob(pattern):
            path.unlink()


def extensions():
    """Return what is to be compiled."""
    if {"egg_info", "dist_info", "sdist"} & set(sys.argv):
        return []  # neither metadata nor an archive of the sources needs a compiler
    forget_compiled()
    if os.environ.get("PYFLINKSTATE_PURE") == "1":
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        return []
    paths = [f"pyflinkstate/{name.replace('.', '/')}.py" for name in ALL_COMPILED]
    # The types of these files are enough; what they import need not even be installed.
    options = ["--config-file=", "--follow-imports=skip", "--ignore-missing-imports"]
    modules = mypycify([*options, *paths], opt_level="3", multi_file=True)
    for module in modules:
        module.optional = True  # a missing compiler is no reason not to install
    return modules


class BuildWithAllCores(build_ext):
    """Compiles the C files of an extension at the same time: there are many, and each test waits for them."""

    def build_extension(self, ext):
        compile_all = self.compiler.compile

        def compile_each(sources, **options):
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                compiled = pool.map(lambda source: compile_all([source], **options), sources)
                return [made for of_one in compiled for made in of_one]

        self.compiler.compile = compile_each
        try:
            super().build_extension(ext)
        finally:
            self.compiler.compile = compile_all


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildWithAllCores})
