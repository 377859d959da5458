"""A setting is a field of an attrs class, made by :meth:`Setting.field`. All rows together are the table.

A row has the key of the setting in a ``Configuration`` and how its value is read there, the values that are
accepted, what the setting means or why it changes nothing, and the values that simulations draw. The rows are
read when a ``Configuration`` is applied, by the classes themselves, by the documents and by tests.

A length of time is a number of milliseconds, or a number with a unit: ``"10 s"``, ``"1 min"``.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias, TypeVar

import attrs

from pyflinkstate.api import Configuration, Setting as Value, at_least, check_kind, parse_map_value
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
    now: object = None

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

    def items(self) -> list[str]:
        """Return the items of a list that is separated by commas."""
        return [item.strip() for item in self.text().split(",") if item.strip()]

    def paths(self) -> list[tuple[str, str | None]]:
        """Read paths as Flink writes them, each with what may follow it: ``/a.zip#folder,/b.zip``."""
        parts = (item.partition("#") for item in self.items())
        return [(path, more or None) for path, _, more in parts]

    def one_of(self, choices: Mapping[str, T]) -> T:
        """Read a word that stands for one of several values."""
        if self.word() not in choices:
            raise ConfigurationError(
                f"setting {self.key!r} is {self.text()!r}: choose one of {', '.join(choices)}"
            )
        return choices[self.word()]


T = TypeVar("T")
#: Reads the value of a setting from a ``Configuration``.
Read: TypeAlias = Callable[[Reader], Value]
#: Returns the value to keep for the one that a program sets on an object, or raises ``ConfigurationError``.
Takes: TypeAlias = Callable[[Any, Any], Value]

_ROW = "row of the table of settings"


@attrs.frozen(kw_only=True)
class Setting:
    """A row of the table.

    Attributes:
        key: Flink's key, or one of our own; empty if no ``Configuration`` has it.
        read: reads the value.
        default: the value if none is set.
        setter: the method that programs call.
        meaning: for the documents, with the default in words in ``shown`` if the value alone does not say it.
        why_idle: why it changes nothing here; it is kept and given back all the same.
        least: the least of whole numbers that are accepted.
        named: what error messages call it.
        takes: checks and converts a value that a program sets.
        older: older names of the key. If both are set, the newer name counts.
        instead: a name that counts before the key itself.
        parts: keys that are read together with this one, each with the value that this one must have for it
            (None: any).
        drawn: the values that simulations draw, or how probable True is.
    """

    key: str = ""
    read: Read = Reader.text
    default: Value = None
    setter: str = ""
    meaning: str = ""
    shown: str = ""
    why_idle: str = ""
    least: int | None = None
    named: str = ""
    takes: Takes | None = None
    older: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()
    parts: Mapping[str, str | None] = attrs.field(factory=dict)
    drawn: tuple[Value, ...] | float = ()

    def checked(self, owner: object, value: Value) -> Any:
        """Check the value that a program sets on ``owner``, and return the value to keep."""
        if self.least is not None:
            return at_least(self.named, value, self.least)
        return value if self.takes is None else self.takes(owner, value)

    def field(self, init: bool = True, **more: Any) -> Any:
        """Return the attrs field of the row; further arguments go to ``attrs.field``."""
        if self.least is not None:
            check = partial(self.checked, None)
            more["converter"] = attrs.converters.optional(check) if self.default is None else check
        return attrs.field(default=self.default, metadata={_ROW: self}, init=init, **more)

    def names(self) -> list[str]:
        """Return the keys under which it may be set; if it is under several, the first counts."""
        return [*self.instead, self.key, *self.older]


@attrs.frozen(kw_only=True)
class Milliseconds(Setting):
    """A row of a length of time, which programs set in milliseconds."""

    read: Read = Reader.milliseconds
    least: int | None = 0


class SettingsGroup:
    """The base of mutable classes whose fields are settings."""

    __slots__ = ()

    def put(self, **values: Value) -> None:
        """Check and set fields."""
        for name, value in values.items():
            setattr(self, name, value)


def rows_of(cls: type) -> dict[str, Setting]:
    """Return the rows of a class by the names of its fields."""
    return {field.name: field.metadata[_ROW] for field in attrs.fields(cls) if _ROW in field.metadata}


def check_set(owner: object, field: attrs.Attribute[object], value: Value) -> Value:
    """Check a value that is assigned to a field; classes with settings pass this as ``on_setattr``."""
    row = field.metadata.get(_ROW)
    return value if row is None else row.checked(owner, value)


def a_value_of(kind: type) -> Takes:
    """Return a function that refuses values of other classes."""

    def take(_: object, value: Value) -> Value:
        check_kind(f"a value of {kind.__name__} is needed", value, kind)
        return value

    return take


def a_switch(_: object, value: Value) -> bool:
    """Convert a value to True or False."""
    return bool(value)


def choice_of(kind: type[enum.Enum]) -> Read:
    """Return a function that reads a member of an enum by its name, in any case, with - or _."""
    choices = {one.name.lower().replace("_", "-"): one for one in kind}
    return lambda reader: reader.one_of(choices)
