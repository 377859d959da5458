"""Avro's values as Flink writes them, for schemas that have a type of this project.

A record becomes a row, an enum the place of its symbol, and a union with null the other type or None. Flink
has an encoder of its own: numbers have all their bytes. Other unions, recursive records, and parts without
any bytes have no type here.
"""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Mapping
from typing import cast

from pyflinkstate.api import RowTypeInfo, TypeInformation, Types
from pyflinkstate.backends.flink_format import forms
from pyflinkstate.backends.flink_format.forms import Form
from pyflinkstate.errors import PyFlinkStateError

#: Strings in UTF-8, which PyFlink writes as well.
TEXT = forms.Mapped(
    forms.Bytes(), lambda data: cast(bytes, data).decode(), lambda value: cast(str, value).encode()
)
_RAW = Types.PRIMITIVE_ARRAY(Types.BYTE())
_PRIMITIVES: dict[str, tuple[Form, TypeInformation]] = {
    "boolean": (forms.Number("?"), Types.BOOLEAN()),
    "int": (forms.Number("i"), Types.INT()),
    "long": (forms.Number("q"), Types.LONG()),
    "float": (forms.Number("f"), Types.FLOAT()),
    "double": (forms.Number("d"), Types.DOUBLE()),
    "string": (TEXT, Types.STRING()),
    "bytes": (forms.Bytes(), _RAW),
    "enum": (forms.Number("i"), Types.INT()),
}

UNKNOWN: tuple[Form, TypeInformation] = (forms.Opaque(), _RAW)

#: Named types by their full names and by their own.
Named = dict[str, tuple[Form, TypeInformation]]


@functools.lru_cache(maxsize=100)
def form_and_type(schema: str) -> tuple[Form, TypeInformation]:
    """Return how values of a schema are written, and their type; :data:`UNKNOWN` if they have no type here.

    The functions below fail, in one way or another, at what they do not know.
    """
    try:
        return _of(json.loads(schema), {})
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        PyFlinkStateError,
        RecursionError,
        TypeError,
        ValueError,
        struct.error,
    ):
        return UNKNOWN


def _of(schema: object, named: Named) -> tuple[Form, TypeInformation]:
    if isinstance(schema, str):
        return _PRIMITIVES.get(schema) or named[schema]
    if isinstance(schema, list):
        return _of_union(schema, named)
    return _of_object(cast(Mapping[str, object], schema), named)


def _of_union(schemas: list[object], named: Named) -> tuple[Form, TypeInformation]:
    first, second = schemas
    null = schemas.index("null")
    form, type_info = _of(first if null else second, named)
    return forms.Nullable(form, (1 - null).to_bytes(4, "big"), null.to_bytes(4, "big")), type_info


def _of_object(schema: Mapping[str, object], named: Named) -> tuple[Form, TypeInformation]:
    kind = schema["type"]
    if kind == "array":
        form, type_info = _of(schema["items"], named)
        make = (
            Types.OBJECT_ARRAY if isinstance(schema["items"], list) else Types.LIST
        )  # only arrays hold None
        return forms.Blocks(form), make(type_info)
    if kind == "map":
        form, type_info = _of(schema["values"], named)
        pairs = forms.Blocks(forms.Tuple([TEXT, form]))
        items = forms.Mapped(
            pairs,
            lambda found: dict(cast(list[tuple[object, object]], found)),
            lambda value: [*cast(dict[object, object], value).items()],
        )
        return items, Types.MAP(Types.STRING(), type_info)
    if kind == "record":
        found = _of_record(schema, named)
    elif kind == "fixed":
        size = int(cast(int, schema["size"]))
        found = forms.Fields(f"{max(1, size)}s", bytes, lambda value: (value,)), _RAW
    else:
        found = _of(kind, named)
    if "name" in schema:
        for name in (f"{schema.get('namespace', '')}.{schema['name']}", str(schema["name"])):
            named[name] = found
    return found


def _of_record(schema: Mapping[str, object], named: Named) -> tuple[Form, TypeInformation]:
    fields = cast(list[dict[str, object]], schema["fields"])
    parts = [_of(field["type"], named) for field in fields]
    names = tuple([str(field["name"]) for field in fields])
    types = [type_info for _, type_info in parts]
    return forms.record([form for form, _ in parts], names), RowTypeInfo(types, names)
