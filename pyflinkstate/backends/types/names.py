"""The names of types in a checkpoint, as JSON values."""

from __future__ import annotations

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import Json
from pyflinkstate.backends.types.codec import walk
from pyflinkstate.backends.types.table import OF_NAME, codec_of
from pyflinkstate.errors import IncompatibleCheckpointError


def type_to_json(type_info: TypeInformation) -> Json:
    """Return ``type_info`` as JSON values, for the head of a checkpoint file."""
    return walk(type_info, _to_json)


def _to_json(type_info: TypeInformation, parts: list[Json]) -> Json:
    codec = codec_of(type_info)
    return [codec.name, *codec.details(type_info), *parts] if codec.is_composite else codec.name


def type_from_json(spec: Json) -> TypeInformation:
    """Return the type that was passed to :func:`type_to_json`."""
    is_composite = isinstance(spec, list) and bool(spec)
    name, *rest = spec if is_composite else [spec]
    codec = OF_NAME.get(name) if isinstance(name, str) else None
    if codec is None or codec.make is None or codec.is_composite != is_composite:
        raise IncompatibleCheckpointError(
            f"the checkpoint holds a type that this release does not know: {spec!r}"
        )
    details, parts = rest[: codec.detail_count], rest[codec.detail_count :]
    return codec.make(*details, *map(type_from_json, parts))
