"""Frames: how records travel. Columns, not rows, pickled once for some thousand records.

Two pickled lists cost a third of a list of pairs, and Spark moves a frame as opaque bytes, so its own
per-record cost vanishes. A frame is pickled by one task of the job and unpickled by another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from operator import itemgetter
from typing import Any

import attrs
import numpy as np

from pyflinkstate.api.types import PickledBytesTypeInfo, TypeInformation
from pyflinkstate.backends.key_groups import key_group_of_hash, operator_index
from pyflinkstate.backends.key_hashing import KeyHasher
from pyflinkstate.errors import BadRecordError, InvalidKeyError, PyFlinkStateError
from pyflinkstate.runtime.failures import user_failure
from pyflinkstate.runtime.pickling import dumps, loads, unshipped

RECORDS_PER_FRAME = 4096
#: Keys whose group a task remembers; beyond it, the memory is begun anew.
REMEMBERED_KEYS = 500_000

#: (subtask, partition that sent it, number in that partition): sorting by it makes input deterministic.
FrameKey = tuple[int, int, int]


@attrs.frozen
class KeyedFrame:
    """Records on their way to a keyed operator, as columns of one length."""

    #: Unsigned 16-bit numbers, little-endian.
    key_groups: bytes
    keys: Sequence[Any]
    values: Sequence[Any]

    def encode(self) -> bytes:
        """Return the frame's bytes."""
        return _dumps((self.key_groups, self.keys, self.values))

    @classmethod
    def decode(cls, data: bytes) -> KeyedFrame:
        """Return the frame that ``encode`` was called on."""
        return cls(*loads(data))


def encode_values(values: Sequence[Any]) -> bytes:
    """Return a frame of plain values."""
    return _dumps(values)


def decode_values(data: bytes) -> Sequence[Any]:
    """Return the values that ``encode_values`` was given."""
    values: Sequence[Any] = loads(data)
    return values


def _dumps(columns: Any) -> bytes:
    try:
        return dumps(columns)
    except Exception as error:
        raise BadRecordError(
            f"records between operators must be picklable: {type(error).__name__}: {error}"
        ) from error


#: Types for which membership of a whole batch is told by ``type`` alone, so the check is one set.
_EXACT_TYPES: dict[str, type] = {
    "STRING": str,
    "BYTES": bytes,
    "BOOLEAN": bool,
    **dict.fromkeys(("BYTE", "SHORT", "INT", "LONG", "BIG_INT"), int),
}


class _KeyGroups(dict[Any, int]):
    """Key -> key group, remembered; only keys that were found valid are in it."""

    def __init__(self, key_type: TypeInformation, max_parallelism: int) -> None:
        self._hasher = KeyHasher(key_type)
        self._max_parallelism = max_parallelism
        self._exact_type = _EXACT_TYPES.get(key_type.kind)
        self._converts = not isinstance(key_type, PickledBytesTypeInfo) and self._exact_type is None

    def of_batch(self, keys: Sequence[Any]) -> tuple[Sequence[Any], list[int]]:
        """Return the keys as their type keeps them, and their key groups.

        Raises:
            InvalidKeyError: one of the keys; :meth:`check` tells which.
        """
        if self._converts or (self._exact_type and set(map(type, keys)) != {self._exact_type}):
            keys = [self._hasher.check(key) for key in keys]
        try:
            groups = list(map(self.get, keys))
        except TypeError as error:
            self._check_all(keys)
            raise InvalidKeyError(f"keys of one stream that cannot be compared: {error}") from error
        if None in groups:
            self._learn(keys, groups)
            groups = list(map(self.__getitem__, keys))
        return keys, groups  # type: ignore[return-value]

    def _learn(self, keys: Sequence[Any], groups: Sequence[int | None]) -> None:
        missing = [key for key, group in zip(keys, groups, strict=True) if group is None]
        if self._exact_type is not str or not "".join(missing).isascii():
            self._check_all(missing)
        if len(self) + len(missing) > REMEMBERED_KEYS:
            self.clear()
            missing = list(keys)
        for key, code in zip(missing, self._hasher.hashes(missing), strict=True):
            self[key] = key_group_of_hash(code, self._max_parallelism)

    def _check_all(self, keys: Iterable[Any]) -> None:
        for key in keys:
            self._hasher.check(key)

    def check(self, key: Any) -> None:
        """Raise ``InvalidKeyError`` if ``key`` is not a valid key."""
        self._hasher.check(key)


#: One memory per key type and max parallelism, for as long as the Spark worker lives.
_REMEMBERED: dict[tuple[TypeInformation, int], _KeyGroups] = {}


@attrs.frozen
class Router:
    """Spreads records over the subtasks of a keyed operator, in frames."""

    operator: str
    select_key: Callable[[Any], Any]
    key_type: TypeInformation
    parallelism: int
    max_parallelism: int

    def route(self, partition: int, records: Iterable[Any]) -> Iterator[tuple[FrameKey, bytes]]:
        """Yield the frames of one partition's records.

        Raises:
            InvalidKeyError: a record's key cannot be one; names operator and record.
        """
        groups_of = self._key_groups()
        select_key = unshipped(self.select_key)
        iterator = iter(records)
        size = max(RECORDS_PER_FRAME, 1024 * self.parallelism)
        number = 0
        while batch := list(islice(iterator, size)):
            for subtask, frame in self._split(batch, select_key, groups_of):
                yield (subtask, partition, number), frame.encode()
            number += 1

    def _key_groups(self) -> _KeyGroups:
        identity = (self.key_type, self.max_parallelism)
        if identity not in _REMEMBERED:
            _REMEMBERED[identity] = _KeyGroups(*identity)
        return _REMEMBERED[identity]

    def _split(
        self, batch: list[Any], select_key: Callable[[Any], Any], groups_of: _KeyGroups
    ) -> Iterator[tuple[int, KeyedFrame]]:
        keys, groups = self._keys_and_groups(batch, select_key, groups_of)
        if self.parallelism == 1:
            yield 0, KeyedFrame(groups.tobytes(), keys, batch)
            return
        order = np.argsort(groups, kind="stable")
        groups = groups[order]
        pick = _picker(order.tolist())
        keys, values = pick(keys), pick(batch)
        subtasks = operator_index_of(groups, self.max_parallelism, self.parallelism)
        starts = np.searchsorted(subtasks, np.arange(self.parallelism + 1)).tolist()
        for subtask, (start, end) in enumerate(pairwise(starts)):
            if start < end:
                yield (
                    subtask,
                    KeyedFrame(groups[start:end].tobytes(), keys[start:end], values[start:end]),
                )

    def _keys_and_groups(
        self, batch: list[Any], select_key: Callable[[Any], Any], groups_of: _KeyGroups
    ) -> tuple[Sequence[Any], np.ndarray[Any, np.dtype[np.uint16]]]:
        selected: list[Any] = []
        try:
            selected.extend(map(select_key, batch))
        except Exception as error:
            # extend() keeps what came before the failure, so its length points at the record.
            raise user_failure(error, self.operator, batch[len(selected)]) from error
        if len(selected) != len(batch):
            # extend() takes a StopIteration out of the selector for the end of the batch.
            raise user_failure(StopIteration(), self.operator, batch[len(selected)])
        try:
            keys, groups = groups_of.of_batch(selected)
        except BadRecordError as error:
            raise self._with_record(error, batch, selected, groups_of) from None
        return keys, np.array(groups, dtype=np.uint16)

    def _with_record(
        self, error: BadRecordError, batch: list[Any], keys: Sequence[Any], groups_of: _KeyGroups
    ) -> PyFlinkStateError:
        for record, key in zip(batch, keys, strict=True):
            try:
                groups_of.check(key)
            except BadRecordError as found:
                return user_failure(found, self.operator, record)
        return error


def operator_index_of(
    groups: np.ndarray[Any, np.dtype[np.uint16]], max_parallelism: int, parallelism: int
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """:func:`~pyflinkstate.backends.key_groups.operator_index` of many key groups at once."""
    return operator_index(max_parallelism, parallelism, groups.astype(np.int64))  # type: ignore


def _picker(order: list[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    if len(order) == 1:
        return lambda values: (values[order[0]],)
    return itemgetter(*order)
