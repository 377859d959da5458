"""The id of an operator in a savepoint: a hash of the uid that the program gave it."""

from __future__ import annotations

_MASK = (1 << 64) - 1
_FIRST, _SECOND = 0x87C37B91114253D5, 0x4CF5AD432745937F


def operator_id(uid: str) -> bytes:
    """Return the id of the operator with this uid: its murmur3_128 hash, of 16 bytes.

    Flink: ``StreamGraphHasherV2``.

    >>> operator_id("my-uid").hex()
    '8409efe6adc6d20787611f16017c808f'
    """
    data = uid.encode()
    low = high = 0
    for at in range(0, len(data) - 15, 16):
        low ^= _mixed(int.from_bytes(data[at : at + 8], "little"), _FIRST, 31, _SECOND)
        low = ((_rotated(low, 27) + high) * 5 + 0x52DCE729) & _MASK
        high ^= _mixed(int.from_bytes(data[at + 8 : at + 16], "little"), _SECOND, 33, _FIRST)
        high = ((_rotated(high, 31) + low) * 5 + 0x38495AB5) & _MASK
    tail = data[len(data) // 16 * 16 :]
    low ^= _mixed(int.from_bytes(tail[:8], "little"), _FIRST, 31, _SECOND) ^ len(data)
    high ^= _mixed(int.from_bytes(tail[8:], "little"), _SECOND, 33, _FIRST) ^ len(data)
    low = (low + high) & _MASK
    high = (high + low) & _MASK
    low, high = _finished(low), _finished(high)
    low = (low + high) & _MASK
    high = (high + low) & _MASK
    return low.to_bytes(8, "little") + high.to_bytes(8, "little")


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (64 - bits)) & _MASK


def _mixed(number: int, before: int, bits: int, after: int) -> int:
    return _rotated(number * before & _MASK, bits) * after & _MASK


def _finished(number: int) -> int:
    number = (number ^ number >> 33) * 0xFF51AFD7ED558CCD & _MASK
    number = (number ^ number >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return number ^ number >> 33
