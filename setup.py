"""Compiles the core of the heap backend with mypyc; all else is in pyproject.toml.

Without a C compiler, or with PYFLINKSTATE_PURE=1, the same files are installed as they are.
"""

import os
import sys
from pathlib import Path

from setuptools import setup

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
    modules = mypycify([*options, *paths], opt_level="3")
    for module in modules:
        module.optional = True  # a missing compiler is no reason not to install
    return modules


setup(ext_modules=extensions())
