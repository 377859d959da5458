"""The packages that a connector needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyflinkstate.errors import ConfigurationError


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Import the packages of a connector; say which extra brings them if they are not installed.

    Args:
        extra: the name of the extra.

    Raises:
        ConfigurationError: a package is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise ConfigurationError(
            f"this connector needs the package {error.name}: pip install 'pyflinkstate[{extra}]', in the "
            f"environment of the driver and of the workers",
            package=error.name,
        ) from error
