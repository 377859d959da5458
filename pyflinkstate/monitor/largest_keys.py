"""The largest keys of an operator's state, from its last checkpoint: found on request, and within bounds.

They are found on a thread of its own, one request after the other, so a viewer never waits for another one's
answer and never costs more than one thread. No pickle that names code is loaded.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from pyflinkstate.api import JsonObject, safe_repr
from pyflinkstate.errors import PickledStateError, PyFlinkStateError
from pyflinkstate.state_access import Checkpoint, open_checkpoint
from pyflinkstate.state_access.command_line.output import state_names
from pyflinkstate.state_access.tables import load_plain

#: Number of keys returned for each state.
MOST_KEYS = 20
#: The search ends after this many seconds, and says so.
MOST_S = 20.0
#: Number of answers that are kept.
MOST_KEPT = 8
#: Length at which a shown key is cut, in characters.
MOST_TEXT = 200
_SIZED = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)

#: A path, an operator, and the checkpoint that it is about.
_Asked = tuple[str, str, int | None]

_log = logging.getLogger("pyflinkstate.monitor")


class LargestKeys:
    """Finds the largest keys for one page.

    Args:
        now_s: a monotonic clock.
        start: runs a function concurrently.
    """

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        start: Callable[[Callable[[], None]], None] = lambda run: threading.Thread(
            target=run, name="pyflinkstate largest keys", daemon=True
        ).start(),
    ) -> None:
        self._now_s = now_s
        self._start = start
        self._lock = threading.Lock()
        self._answers: dict[_Asked, JsonObject] = {}
        self._sought: _Asked | None = None

    def of(self, path: str, operator: str, checkpoint_id: int | None = None) -> JsonObject:
        """Return the answer, or one that is not ``is_ready``; the search begins unless there is another one.

        Args:
            path: the folder of a checkpoint, or that of a job for its newest one.
            operator: the uid of an operator.
            checkpoint_id: answers about another checkpoint do not count.
        """
        asked = (path, operator, checkpoint_id)
        with self._lock:
            if asked in self._answers:
                # A storage may fail for a moment only: an error is shown once, then the search starts again.
                is_error = "error" in self._answers[asked]
                return self._answers.pop(asked) if is_error else self._answers[asked]
            if self._sought is None:
                self._sought = asked
                self._start(lambda: self._find(asked))
            return {"is_ready": False}

    def _find(self, asked: _Asked) -> None:
        answer: JsonObject = {"is_ready": True, "error": "the checkpoint could not be read; the log says why"}
        try:
            answer = {"is_ready": True, **largest_keys(asked[0], asked[1], self._now_s)}
        except PyFlinkStateError as error:
            answer["error"] = str(error)
        except Exception:  # noqa: BLE001 - whatever a storage or a file does, the page goes on
            _log.exception("the largest keys of %s in %s were not found", asked[1], asked[0])
        finally:
            with self._lock:
                while len(self._answers) >= MOST_KEPT:
                    del self._answers[next(iter(self._answers))]
                self._answers[asked] = answer
                self._sought = None


def largest_keys(path: str, operator: str, now_s: Callable[[], float] = time.monotonic) -> JsonObject:
    """Return the largest keys of each keyed state of an operator.

    Returns:
        ``states``, by name: ``entries`` (how many there are), ``bytes`` (as Arrow columns), ``is_whole``
        (whether the search has seen all of it), and ``keys``, the largest first: each with ``key`` (a text),
        ``entries`` and ``bytes``. A checkpoint keeps compressed columns, so its files are smaller.

    Raises:
        PyFlinkStateError: the checkpoint or the operator is not there, or is damaged.
    """
    checkpoint, until_s = open_checkpoint(path), now_s() + MOST_S
    names = state_names(checkpoint, operator)
    return {"states": {name: _of_state(checkpoint, operator, name, now_s, until_s) for name in names}}


def _of_state(
    checkpoint: Checkpoint, operator: str, state: str, now_s: Callable[[], float], until_s: float
) -> JsonObject:
    entries = size = 0
    found: list[tuple[int, int, str]] = []
    is_whole = True
    for batch in checkpoint.entries(operator, state).to_batches():
        entries, size = entries + batch.num_rows, size + batch.nbytes
        found = heapq.nlargest(MOST_KEYS, [*found, *_keys(batch)])
        if now_s() > until_s:
            is_whole = False
            break
    keys = [{"key": key, "entries": count, "bytes": own} for own, count, key in found]
    return {"entries": entries, "bytes": size, "is_whole": is_whole, "keys": keys}


def _keys(batch: pa.RecordBatch) -> Iterator[tuple[int, int, str]]:
    """Yield bytes, entries and text of the largest keys of a key group; no other group has any of them."""
    if not batch.num_rows:
        return
    sizes = _row_bytes(batch)
    codes = _codes(batch.column("key"))
    table = pa.table({"code": codes.indices, "size": sizes})
    sums = table.group_by("code").aggregate([("size", "sum"), ("size", "count")])
    largest = sums.sort_by([("size_sum", "descending")]).slice(0, MOST_KEYS).to_pylist()
    for row in largest:
        yield row["size_sum"], row["size_count"], _text(codes.dictionary[row["code"]].as_py())


def _codes(keys: pa.Array) -> pa.DictionaryArray:
    """Return keys as places in a list of different ones; Arrow has that for plain types only."""
    try:
        return pc.dictionary_encode(keys)
    except pa.ArrowNotImplementedError:
        return pc.dictionary_encode(pa.array([safe_repr(key, MOST_TEXT) for key in keys.to_pylist()]))


def _row_bytes(batch: pa.RecordBatch) -> pa.Array:
    """Return about how many bytes each row takes: its own length, or an equal part of a column."""
    total = pa.array([0] * batch.num_rows, pa.int64())
    for column in batch.columns:
        own = _lengths(column)
        if own is None:
            total = pc.add(total, max(1, column.nbytes // batch.num_rows))
        else:
            total = pc.add(total, pc.fill_null(pc.cast(own, pa.int64()), 0))
    return total


def _lengths(column: pa.Array) -> pa.Array | None:
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        lists = column if not pa.types.is_map(kind) else column.cast(pa.list_(kind.field(0)))
        inner = lists.flatten()
        each = max(1, inner.nbytes // len(inner)) if len(inner) else 1
        return pc.multiply(pc.list_value_length(lists), each)
    is_sized = any(is_kind(kind) for is_kind in _SIZED)
    return pc.binary_length(column) if is_sized else None


def _text(key: object) -> str:
    """Return a key as a string; a pickled one by its value if loading it runs no code."""
    if isinstance(key, bytes):
        try:
            key = load_plain(key)
        except PickledStateError:
            return safe_repr(key, MOST_TEXT)
    return key[:MOST_TEXT] if isinstance(key, str) else safe_repr(key, MOST_TEXT)
