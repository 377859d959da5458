"""Packages that load their public names on first use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def on_first_use(package: str, module_of: Mapping[str, str]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package.

    Args:
        package: its name.
        module_of: its public names, each with the module below it that has the object.
    """

    def load(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
