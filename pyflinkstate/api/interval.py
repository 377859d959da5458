"""The part of a time window that costs: made, compared and hashed for every record of a window, it is
compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_extensions import i64, mypyc_attr


def _undecorated(**_: bool) -> Any:
    return lambda cls: cls


# Only the compiler reads mypyc's decorator. Where this file is interpreted, something must have its name.
globals().setdefault("mypyc_attr", _undecorated)


@mypyc_attr(allow_interpreted_subclasses=True)
class Interval:
    """The time from ``from_ms`` (included) to ``to_ms`` (excluded); it is never changed."""

    __slots__ = ("_hash", "from_ms", "to_ms")

    def __init__(self, start: Any, end: Any) -> None:
        self.from_ms = start
        self.to_ms = end
        #: The hash code, or -1 as long as nobody has asked for it.
        self._hash: i64 = -1

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        interval: Any = other
        return bool(self.from_ms == interval.from_ms and self.to_ms == interval.to_ms)

    def __hash__(self) -> int:
        if self._hash == -1:
            self._hash = hash((self.from_ms, self.to_ms))
        return self._hash

    # Python asks these two for ``>`` and ``>=`` as well, with the intervals swapped.
    def __lt__(self, other: Any) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool((self.from_ms, self.to_ms) < (other.from_ms, other.to_ms))

    def __le__(self, other: Any) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return bool((self.from_ms, self.to_ms) <= (other.from_ms, other.to_ms))
