"""Reads settings from a ``Configuration``.

A length of time is a number of milliseconds, or a number with a unit: ``"10 s"``, ``"1 min"``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import attrs

from pyflinkstate.api.configuration import Configuration, parse_map_value
from pyflinkstate.errors import ConfigurationError

_UNITS_MS = {
    "": 1,
    **dict.fromkeys(("ms", "milli", "millis", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_SIZES = {
    **dict.fromkeys(("", "b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kibibytes"), 1024),
    **dict.fromkeys(("m", "mb", "mebibytes"), 1024**2),
    **dict.fromkeys(("g", "gb", "gibibytes"), 1024**3),
    **dict.fromkeys(("t", "tb", "tebibytes"), 1024**4),
}
_A_TIME = "a number of milliseconds, or a number and ms, s, min, h or d, such as '10 s'"
_A_SIZE = "a number of bytes, or a number and b, kb, mb, gb or tb, such as '20 kb'"


def _measure(key: str, text: str, units: dict[str, int], needed: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].lower() not in units:
        raise ConfigurationError(f"setting {key!r} is {text!r}: {needed} is needed")
    return int(match[1]) * units[match[2].lower()]


@attrs.frozen
class Reader:
    """Reads one setting; the keys of those that belong to it are read along.

    Attributes:
        configuration: all that was ever given: settings that belong together may come one after the other.
        key: the name of the setting.
        given: what this call gives.
        now: the value that the setting has now.
    """

    configuration: Configuration
    key: str
    given: Configuration
    now: Any = None

    def is_set(self) -> bool:
        """Return whether this call or one before gives it."""
        return self.configuration.contains_key(self.key)

    def is_given(self, key: str | None = None) -> bool:
        """Return whether this call gives it, and not only one before."""
        return self.given.contains_key(key or self.key)

    def text(self, key: str | None = None, default: str = "") -> str:
        """Read a text."""
        return self.configuration.get_string(key or self.key, default)

    def word(self) -> str:
        """Read a word, in lower case and with ``-`` for ``_``."""
        return self.text().strip().lower().replace("_", "-")

    def number(self) -> int:
        """Read a whole number."""
        return self.configuration.get_integer(self.key, 0)

    def real(self) -> float:
        """Read a number."""
        return self.configuration.get_float(self.key, 0.0)

    def switch(self, key: str | None = None, default: bool = False) -> bool:
        """Read a truth value."""
        return self.configuration.get_boolean(key or self.key, default)

    def milliseconds(self, key: str | None = None) -> int:
        """Read a length of time."""
        return _measure(key or self.key, self.text(key), _UNITS_MS, _A_TIME)

    def size_bytes(self, key: str, default: int) -> int:
        """Read a size."""
        return _measure(key, self.text(key, str(default)), _SIZES, _A_SIZE)

    def entries(self) -> dict[str, str]:
        """Read a map as configuration files write it: ``a:1,b:'x,y'`` or ``{a: 1, b: 'x,y'}``."""
        try:
            return parse_map_value(self.text())
        except ValueError as error:
            raise ConfigurationError(f"setting {self.key!r} is {self.text()!r}: {error}") from None

    def paths(self) -> list[tuple[str, str | None]]:
        """Read paths as Flink writes them, each with what may follow it: ``/a.zip#folder,/b.zip``."""
        parts = (part.strip().partition("#") for part in self.text().split(",") if part.strip())
        return [(path, more or None) for path, _, more in parts]

    def one_of(self, choices: Mapping[str, Any]) -> Any:
        """Read a word that stands for one of several values."""
        if self.word() not in choices:
            raise ConfigurationError(
                f"setting {self.key!r} is {self.text()!r}: choose one of {', '.join(choices)}"
            )
        return choices[self.word()]
