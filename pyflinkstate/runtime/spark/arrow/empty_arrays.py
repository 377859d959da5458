"""Gives empty arrays the offset that the JVM leaves out.

The offsets of lists, maps, texts and bytes say where each value begins, and the last one where they end, so
an empty array has one offset. The Arrow of the JVM writes none. Arrow in Python trusts that it is there, and
reads whatever lies in memory at that place: lists begin anywhere, and the size of a batch is any number.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose empty arrays are sound; it is the same one if no array in it is empty.

    Args:
        batch: as it was read from bytes: its arrays begin with the first value of their buffers.
    """
    columns: list[pa.Array] = batch.columns
    sound = [_sound(column) for column in columns]
    return batch if _are_same(columns, sound) else pa.RecordBatch.from_arrays(sound, schema=batch.schema)


def _sound(array: pa.Array) -> pa.Array:
    if not len(array):
        return pa.nulls(0, array.type)
    children = _children(array)
    sound = [_sound(child) for child in children]
    if _are_same(children, sound):
        return array
    own = array.buffers()[: 1 if pa.types.is_struct(array.type) else 2]
    return pa.Array.from_buffers(array.type, len(array), own, array.null_count, children=sound)


def _children(array: pa.Array) -> list[pa.Array]:
    if pa.types.is_struct(array.type):
        return [array.field(place) for place in range(array.type.num_fields)]
    return [array.values] if pa.types.is_nested(array.type) else []


def _are_same(some: Sequence[pa.Array], others: Sequence[pa.Array]) -> bool:
    return all(one is other for one, other in zip(some, others, strict=True))
