"""The key groups of keys that are strings or longs, which most keys are: computed for each record anew.

To look a key up in a dict of a hundred thousand is slower, because it is rarely in the processor's cache.
Formulas and constants are those of Java's ``String`` and ``Long``, and of Flink's ``MathUtils``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import i64


def java_hash_of_string(text: str) -> i64:
    """``String.hashCode``: over UTF-16 units, so characters beyond the BMP count as two.

    >>> java_hash_of_string("flink")
    97520992
    """
    code: i64 = 0
    for place in range(len(text)):
        unit: i64 = ord(text[place])
        if unit > 0xFFFF:
            code = 31 * code + 0xD7C0 + (unit >> 10)
            unit = 0xDC00 + (unit & 0x3FF)
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - 0x100000000 if code & 0x80000000 else code


def murmur_hash(code: i64) -> i64:
    """Scramble the 32 bits of a Java hash code into a non-negative int (Flink: ``MathUtils.murmurHash``).

    >>> murmur_hash(97)
    1455541201
    """
    code = ((code & 0xFFFFFFFF) * 0xCC9E2D51) & 0xFFFFFFFF
    code = ((code << 15) | (code >> 17)) & 0xFFFFFFFF
    code = (code * 0x1B873593) & 0xFFFFFFFF
    code = ((code << 13) | (code >> 19)) & 0xFFFFFFFF
    code = (code * 5 + 0xE6546B64) & 0xFFFFFFFF
    code ^= 4
    code ^= code >> 16
    code = (code * 0x85EBCA6B) & 0xFFFFFFFF
    code ^= code >> 13
    code = (code * 0xC2B2AE35) & 0xFFFFFFFF
    code ^= code >> 16
    if code < 0x80000000:
        return code
    return 0 if code == 0x80000000 else 0x100000000 - code


def key_group_of_hash(java_hash: i64, max_parallelism: i64) -> i64:
    """Return the key group of a key with this Java hash code (``assignToKeyGroup``)."""
    return murmur_hash(java_hash) % max_parallelism


def key_groups_of_strings(keys: Sequence[str], max_parallelism: i64) -> list[int]:
    """Return the key group of each of some strings; ``ValueError`` if one holds a lone surrogate."""
    groups: list[int] = []
    for key in keys:
        if not key.isascii():
            key.encode()
        groups.append(key_group_of_hash(java_hash_of_string(key), max_parallelism))
    return groups


def key_groups_of_longs(keys: Sequence[int], max_parallelism: i64) -> list[int]:
    """Return the key group of each of some longs; ``OverflowError`` if one has more than 64 bits."""
    groups: list[int] = []
    for key in keys:
        value: i64 = key
        groups.append(key_group_of_hash(value ^ (value >> 32), max_parallelism))
    return groups
