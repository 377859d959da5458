"""Reads the keys that users write on the command line, in the form in which it prints them."""

from __future__ import annotations

import datetime
import decimal
import json
import re
from collections.abc import Callable
from typing import TypeAlias

import attrs

from pyflinkstate.api.time import Instant
from pyflinkstate.api.types import ExternalTypeInfo, PickledBytesTypeInfo, TypeInformation
from pyflinkstate.api.values import Key
from pyflinkstate.errors import InvalidKeyError

#: A value of JSON that may be a key or a part of one.
_Written: TypeAlias = "Key | list[_Written]"

#: How deep the lists of a key may be nested: far deeper than any type is declared.
MOST_LEVELS = 100

_INSTANT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")
_PRINTED_INSTANT = re.compile(r"Instant<(-?\d+), (\d+)>")


@attrs.frozen
class _Form:
    """The written form of the values of a type."""

    example: str
    read: Callable[[str], Key]


def _instant(text: str) -> Instant:
    printed = _PRINTED_INSTANT.fullmatch(text)
    if printed is not None:
        return Instant(int(printed[1]), int(printed[2]))
    found = _INSTANT.fullmatch(text)
    if found is None:
        raise ValueError("it has another form")
    second = datetime.datetime.fromisoformat(f"{found[1]}+00:00")
    return Instant(int(second.timestamp()), int((found[2] or "0").ljust(9, "0")))


#: By the kind of the type; keys of other types are JSON.
_FORMS = {
    "STRING": _Form("a", str),
    "CHAR": _Form("a", str),
    "FLOAT": _Form("1.5", float),
    "DOUBLE": _Form("1.5", float),
    "BIG_DEC": _Form("1.50", decimal.Decimal),
    "BYTES": _Form("ff00", bytes.fromhex),
    "SQL_DATE": _Form("2020-01-02", datetime.date.fromisoformat),
    "SQL_TIME": _Form("03:04:05.678000", datetime.time.fromisoformat),
    "SQL_TIMESTAMP": _Form("2020-01-02 03:04:05.678000", datetime.datetime.fromisoformat),
    "INSTANT": _Form("2020-01-02T03:04:05.678Z", _instant),
}


def parsed_key(text: str, key_type: TypeInformation) -> Key:
    """Return the key that a user has written: strings, dates and the like as printed, others as JSON.

    A key without a declared type is JSON if it can be, and otherwise a text. Lists become tuples, and the
    texts in them values of the types of their fields.

    Raises:
        InvalidKeyError: the text is neither.
    """
    form = _form_of(key_type)
    if form is not None:
        return _read(form, text, key_type)
    try:
        written = json.loads(text)
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:
        if isinstance(key_type, PickledBytesTypeInfo):
            return text
        raise InvalidKeyError(
            f"keys are of {key_type}, and {text!r} is not JSON: {error}", key=text
        ) from error
    return _typed(written, key_type)


def _too_deep() -> InvalidKeyError:
    return InvalidKeyError(f"the JSON of a key is nested more than {MOST_LEVELS} levels deep: no key is")


def _form_of(key_type: TypeInformation) -> _Form | None:
    if isinstance(key_type, ExternalTypeInfo):
        return _form_of(key_type.parts()[0])
    return _FORMS.get(key_type.kind)


def _read(form: _Form, text: str, key_type: TypeInformation) -> Key:
    try:
        return form.read(text)
    except (ValueError, ArithmeticError) as error:
        raise InvalidKeyError(
            f"a key of {key_type} is written like {form.example}, and {text!r} is not: {error}", key=text
        ) from error


def _typed(written: _Written, key_type: TypeInformation | None, level: int = 0) -> Key:
    """Convert parsed JSON to a key; parts without a type stay as they are."""
    if isinstance(written, list):
        if level >= MOST_LEVELS:
            raise _too_deep()
        parts = () if key_type is None else key_type.parts()
        types = parts if len(parts) == len(written) else (None,) * len(written)
        return tuple([_typed(one, part, level + 1) for one, part in zip(written, types, strict=True)])
    form = None if key_type is None else _form_of(key_type)
    if form is None or key_type is None or not isinstance(written, str):
        return written
    return _read(form, written, key_type)
