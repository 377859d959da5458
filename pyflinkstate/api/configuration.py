"""Settings by key, as in Flink's configuration files (``pyflink.common.Configuration``)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Generic

import attrs

from pyflinkstate.api.values import Setting, T
from pyflinkstate.errors import ConfigurationError


class Configuration:
    """Settings by key. The reader of a key decides what it means; unknown keys are kept.

    Args:
        other: the configuration whose settings are copied first.
    """

    def __init__(self, other: Configuration | None = None) -> None:
        self._values: dict[str, Setting] = {} if other is None else dict(other._values)

    @staticmethod
    def from_dict(map: dict[str, Any]) -> Configuration:
        """Return a configuration with the entries of a dict."""
        configuration = Configuration()
        configuration._values.update(map)
        return configuration

    def to_dict(self) -> dict[str, str]:
        """Return all settings as strings."""
        return {key: as_text(value) for key, value in self._values.items()}

    @staticmethod
    def parse_list_value(value: str | None) -> list[str]:
        """Return the items of a list as configuration files write it: ``a;b``, or one of YAML's two forms.

        An item of YAML's lists may be in quotes. None and an empty string are an empty list.

        >>> Configuration.parse_list_value("[file:/a, 'b, c']"), Configuration.parse_list_value("a;b")
        (['file:/a', 'b, c'], ['a', 'b'])
        >>> Configuration.parse_list_value("- a\\n- b"), Configuration.parse_list_value(None)
        (['a', 'b'], [])
        """
        text = (value or "").strip()
        if text.startswith("[") and text.endswith("]"):
            items = _ITEM.findall(text[1:-1])
        elif text.startswith("- "):
            items = [line.strip()[1:] for line in text.splitlines()]
        else:
            items = text.split(";")
        return [_unquoted(item) for item in items if item.strip()]

    # --- strings, numbers, booleans, bytes ---------------------------------------------------------

    def get_string(self, key: str, default_value: str) -> str:
        """Return a setting as a string, or ``default_value`` if it is not set."""
        return self._get(key, default_value, as_text)

    def set_string(self, key: str, value: str) -> Configuration:
        """Set a string."""
        return self._set(key, value, str)

    def get_integer(self, key: str, default_value: int) -> int:
        """Return a setting as a whole number, or ``default_value`` if it is not set.

        Raises:
            ConfigurationError: the setting is not a whole number.
        """
        return self._get(key, default_value, _as_int)

    def set_integer(self, key: str, value: int) -> Configuration:
        """Set a whole number."""
        return self._set(key, value, int)

    def get_boolean(self, key: str, default_value: bool) -> bool:
        """Return a setting as a boolean, or ``default_value`` if it is not set.

        A string must be ``true`` or ``false``.

        Raises:
            ConfigurationError: the setting is not a boolean.
        """
        return self._get(key, default_value, _as_bool)

    def set_boolean(self, key: str, value: bool) -> Configuration:
        """Set a boolean."""
        return self._set(key, value, bool)

    def get_float(self, key: str, default_value: float) -> float:
        """Return a setting as a number, or ``default_value`` if it is not set.

        Raises:
            ConfigurationError: the setting is not a number.
        """
        return self._get(key, default_value, float)

    def set_float(self, key: str, value: float) -> Configuration:
        """Set a number."""
        return self._set(key, value, float)

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        """Return a setting as bytes, or ``default_value`` if it is not set."""
        return self._get(key, default_value, bytearray)

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        """Set bytes."""
        return self._set(key, bytearray(value), bytearray)

    def _get(self, key: str, default_value: T, convert: Callable[[Any], T]) -> T:
        if key not in self._values:
            return default_value
        try:
            return convert(self._values[key])
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"setting {key!r} is {self._values[key]!r}: {error}") from error

    def _set(self, key: str, value: Setting, expected: type) -> Configuration:
        fits = isinstance(value, (int, float)) if expected is float else isinstance(value, expected)
        if not fits or (isinstance(value, bool) and expected is not bool):
            raise ConfigurationError(f"setting {key!r} takes a {expected.__name__} here, not {value!r}")
        self._values[key] = value
        return self

    # --- all of them -----------------------------------------------------------------------------------

    def key_set(self) -> set[str]:
        """Return all keys."""
        return set(self._values)

    def contains_key(self, key: str) -> bool:
        """Return whether the key is set."""
        return key in self._values

    def remove_config(self, key: str) -> bool:
        """Remove a setting; return whether there was one."""
        return self._values.pop(key, None) is not None

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Copy all settings of another configuration, with ``prefix`` put before each key."""
        self._values.update({f"{prefix or ''}{key}": value for key, value in other._values.items()})
        return self

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        """Put all settings into a dict, unchanged."""
        target_dict.update(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self._values == other._values

    def __hash__(self) -> int:
        """As in PyFlink, the hash depends on the values: do not change a dict's key."""
        return hash(frozenset((key, as_text(value)) for key, value in self._values.items()))

    def __str__(self) -> str:
        return "{" + ", ".join(f"{key}={as_text(value)}" for key, value in self._values.items()) + "}"

    def __repr__(self) -> str:
        return f"Configuration({self._values})"


def parse_map_value(value: str) -> dict[str, str]:
    """Return the entries of a map that is written as in configuration files.

    >>> parse_map_value("a:1, b:'x,y'"), parse_map_value("{a: 1, b: 'x,y'}")
    ({'a': '1', 'b': 'x,y'}, {'a': '1', 'b': 'x,y'})

    Raises:
        ValueError: it is written in another way, has a key twice, or has maps or lists in it.
    """
    text = value.strip()
    found: dict[str, str] = {}
    for key, item in _entries_in_braces(text) if text.startswith("{") else _entries(text):
        if key in found:
            raise ValueError(f"it has the key {key!r} twice")
        found[key] = item
    return found


def _entries(text: str) -> Iterator[tuple[str, str]]:
    for entry in re.findall(r"(?:'[^']*'|[^,'])+", text):
        key, colon, item = (part.strip().strip("'") for part in entry.partition(":"))
        if not key or not colon:
            raise ValueError("entries such as a:1,b:2 are needed")
        yield key, item


#: Texts of YAML, in quotes and without. In the latter a colon before a space ends a key, and a # after one
#: begins a comment.
_QUOTED = r"'(?:[^']|'')*'|\"[^\"\\]*\""
_PLAIN = (
    r"(?:[^\s'\"{}\[\],:#&*!|>%@`?-]|[?:-](?=[^\s{}\[\],]))"  # how it may begin
    r"(?:[^{}\[\],:#]|:(?=[^\s{}\[\],])|(?<!\s)#)*"
)
_ENTRY = re.compile(
    rf"\s*(?:(?P<quoted>{_QUOTED})\s*:|(?P<key>{_PLAIN})\s*:(?=\s))\s*(?P<item>{_QUOTED}|{_PLAIN})\s*(?:,|$)"
)
#: An item of a list as YAML writes it in one line.
_ITEM = re.compile(rf"(?:{_QUOTED}|[^,])+")
_NULLS = ("null", "Null", "NULL", "~")


def _entries_in_braces(text: str) -> Iterator[tuple[str, str]]:
    """Yield the entries of a map as YAML writes it in one line."""
    inside, place = text[1:-1], 0
    if not text.endswith("}"):
        raise ValueError("there is no } at its end")
    while inside[place:].strip():
        entry = _ENTRY.match(inside, place)
        if entry is None or entry["item"].strip() in _NULLS:
            raise ValueError(
                f"a map such as {{a: 1, b: 'x, y'}} is needed, and what cannot be read begins with "
                f"{inside[place:].strip()!r}"
            )
        yield _unquoted(entry["quoted"] or entry["key"]), _unquoted(entry["item"])
        place = entry.end()


def _unquoted(text: str) -> str:
    text = text.strip()
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    return text[1:-1] if text.startswith('"') else text


def as_text(value: Setting) -> str:
    """Return a setting as configuration files write it: ``true``, not ``True``."""
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _as_int(value: Any) -> int:
    if isinstance(value, (bool, float)) or not re.fullmatch(r"\s*[+-]?\d+\s*", str(value)):
        raise ValueError("a whole number is needed, such as 4")
    return int(value)


def _as_bool(value: Setting) -> bool:
    if isinstance(value, bool):
        return value
    known = {"true": True, "false": False}.get(str(value).strip().lower())
    if known is None:
        raise ValueError("true or false is needed")
    return known


@attrs.frozen
class ConfigOption(Generic[T]):
    """A key, the type of its values, and a default value. :class:`ConfigOptions` makes it.

    Attributes:
        key: its key in a ``Configuration``.
        value_type: the type of its values.
        default_value: the default value; None if there is none.
    """

    key: str
    value_type: type
    default_value: T | None = None


class ConfigOptions:
    """Builds options.

    >>> ConfigOptions.key("application.parallelism").int_type().default_value(100).default_value
    100
    """

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        """Return a builder of an option with this key."""
        return ConfigOptions.OptionBuilder(key)

    @attrs.frozen
    class OptionBuilder:
        """The builder of an option after its key: the type is next."""

        key: str

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder[bool]:
            """Choose boolean values."""
            return ConfigOptions.TypedConfigOptionBuilder(self.key, bool)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Choose whole numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self.key, int)

        long_type = int_type

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Choose numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self.key, float)

        double_type = float_type

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            """Choose strings."""
            return ConfigOptions.TypedConfigOptionBuilder(self.key, str)

    @attrs.frozen
    class TypedConfigOptionBuilder(Generic[T]):
        """The builder of an option after its type: the default is last."""

        key: str
        value_type: type

        def default_value(self, value: T) -> ConfigOption[T]:
            """Return the option with a default."""
            return ConfigOption(self.key, self.value_type, value)

        def no_default_value(self) -> ConfigOption[T]:
            """Return the option without a default."""
            return ConfigOption(self.key, self.value_type)
