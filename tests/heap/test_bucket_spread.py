"""Keys whose hashes have a pattern spread over the buckets as keys without one do.

The nested map has no buckets: it is made of plain dicts, whose probing looks at all bits of a hash.
"""

import random

import pytest
from state_map_support import mixed
from tiers import cases

from pyflinkstate.backends.heap.copy_on_write_state_map import BUCKET_LOAD, CopyOnWriteStateMap

#: Full tables of 4, 64 and 1,024 buckets.
SIZES = (4 * BUCKET_LOAD, 64 * BUCKET_LOAD, 1024 * BUCKET_LOAD)

#: Random hashes give a full table buckets of a Poisson-distributed length: its mean and eight deviations.
LONGEST = BUCKET_LOAD + round(8 * BUCKET_LOAD**0.5)

MILLISECOND = 1_700_000_000_000

PATTERNS = {
    **{f"i << {shift}": lambda i, shift=shift: i << shift for shift in range(63)},
    **{f"-(i << {shift})": lambda i, shift=shift: -(i << shift) for shift in range(0, 63, 4)},
    **{
        f"i * {stride}": lambda i, stride=stride: i * stride
        for stride in (3, 10, 1000, 3_600_000, 86_400_000, 2**16 + 1, 2**31 - 1, 2**32 + 1, 2**33 - 1, 2**61)
    },
    "snowflake of one machine": lambda i: (MILLISECOND + i << 22) | 5 << 12,
    "snowflake of a burst": lambda i: (MILLISECOND + i // 3 << 22) | i % 3,
    "snowflake each second": lambda i: (MILLISECOND + 1000 * i << 22) | 5 << 12,
    "two halves": lambda i: i << 32 | i,
    "pairs in one int": lambda i: i // 200 << 32 | i % 200,
    "halves against each other": lambda i: (i << 32) - i,
    "whole floats": float,
    "halves": lambda i: i / 2,
    "fractions": lambda i: i * 0.1,
    "small floats": lambda i: (i + 1) * 2.0**-40,
    "big floats": lambda i: (i + 1) * 2.0**80,
    "pairs": lambda i: (i // 200, i % 200),
    "pairs of shifted": lambda i: (i // 200 << 32, i % 200 << 32),
    "one-tuples": lambda i: (i << 20,),
    "tuples of floats": lambda i: (float(i), 0.0),
    "strings": lambda i: f"user-{i:09d}",
    "bytes": lambda i: i.to_bytes(8, "big"),
}


#: Shifts that leave no, some and few of the low 32 bits of a hash; the full tier has all of them.
QUICK = {
    *(name for name in PATTERNS if "<<" not in name),
    *(f"i << {shift}" for shift in (0, 1, 7, 16, 20, 31, 32, 40, 62)),
    *(f"-(i << {shift})" for shift in (0, 20, 32, 60)),
}


def longest_bucket(state_map):
    return max(map(len, state_map._buckets()))


@pytest.mark.parametrize("pattern", cases(PATTERNS, QUICK))
class TestLongestBucket:
    @pytest.mark.parametrize("size", SIZES)
    def test_of_a_full_table(self, pattern, size):
        state_map = CopyOnWriteStateMap(None)
        keys = list(map(PATTERNS[pattern], range(size)))
        state_map.load(keys, keys)
        assert len(state_map) == size
        assert len(state_map._primary) == size // BUCKET_LOAD
        assert longest_bucket(state_map) <= LONGEST

    def test_amid_a_rehash(self, pattern):
        size = SIZES[1]
        state_map = CopyOnWriteStateMap(None)
        for key in map(PATTERNS[pattern], range(size + 20)):
            state_map.put(key, 0)
        assert 0 < state_map._rehash_index < len(state_map._primary)
        assert longest_bucket(state_map) <= LONGEST
        assert max(map(len, state_map._rehash)) <= LONGEST
        state_map._check()


def test_a_machine_word_and_a_python_int_are_mixed_alike():
    """Placement is the same compiled and interpreted, also of the greatest and the least hash."""

    class Hashed:
        def __init__(self, code):
            self.code = code

        def __hash__(self):
            return self.code

    seed = random.Random(7)
    codes = [2**63 - 1, -(2**63), 2**32, -(2**32), 2**31, 0, -2]
    codes += [seed.getrandbits(64) - 2**63 for _ in range(200)]
    state_map = CopyOnWriteStateMap(None, capacity=2**16)
    for code in codes:
        key = Hashed(code)
        state_map.put(key, code)
        assert key in state_map._primary[mixed(hash(key)) % 2**16]
