"""Reads the keys that users write on the command line, in the form in which it prints them."""

from __future__ import annotations

import json
from typing import TypeAlias

from pyflinkstate.api.types import ExternalTypeInfo, PickledBytesTypeInfo, TypeInformation
from pyflinkstate.api.values import Key
from pyflinkstate.backends.types import WrittenForm, written_form
from pyflinkstate.errors import InvalidKeyError

#: A value of JSON that may be a key or a part of one.
_Written: TypeAlias = "Key | list[_Written]"

#: How deep the lists of a key may be nested: far deeper than any type is declared.
MOST_LEVELS = 100


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


def _form_of(key_type: TypeInformation) -> WrittenForm | None:
    if isinstance(key_type, ExternalTypeInfo):
        return _form_of(key_type.parts()[0])
    return written_form(key_type)


def _read(form: WrittenForm, text: str, key_type: TypeInformation) -> Key:
    try:
        key: Key = form.read(text)
    except (ValueError, ArithmeticError) as error:
        raise InvalidKeyError(
            f"a key of {key_type} is written like {form.example}, and {text!r} is not: {error}", key=text
        ) from error
    return key


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
