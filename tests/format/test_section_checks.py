"""The sections of a file are compared with their checksums while it is read piece by piece."""

import zlib

import pytest

from pyflinkstate.backends.format.sections import SectionChecks
from pyflinkstate.backends.format.state_handles import Section
from pyflinkstate.errors import CorruptCheckpointError

DATA = bytes(range(100))
#: Adjacent, apart, empty in the middle and at the end, one inside of another, and the last bytes.
PLACES = [(60, 0), (0, 10), (10, 1), (30, 20), (35, 5), (90, 10), (100, 0)]


def sections_of(data):
    return [
        (Section(offset, length, zlib.crc32(data[offset : offset + length])), f"section {offset}")
        for offset, length in PLACES
    ]


def read(data, size, sections):
    checks = SectionChecks(sections)
    for offset in range(0, len(data), size):
        checks.take(data[offset : offset + size])
    checks.finish()


@pytest.mark.parametrize("size", [1, 3, 10, 99, 100, 1000])
def test_a_whole_file_is_sound(size):
    read(DATA, size, sections_of(DATA))
    read(DATA, size, [])


@pytest.mark.parametrize("size", [1, 3, 10, 100])
@pytest.mark.parametrize("place", range(100))
def test_each_byte_of_a_section_counts(size, place):
    altered = bytearray(DATA)
    altered[place] ^= 1
    hit = [offset for offset, length in PLACES if offset <= place < offset + length]
    if not hit:
        read(altered, size, sections_of(DATA))
        return
    names = "|".join(f"section {offset}" for offset in hit)
    with pytest.raises(CorruptCheckpointError, match=f"({names}) is damaged: its bytes were altered"):
        read(altered, size, sections_of(DATA))


def test_a_section_beyond_the_end_is_truncated():
    with pytest.raises(CorruptCheckpointError, match="section 90 is damaged: it is truncated"):
        read(DATA[:95], 10, [place for place in sections_of(DATA) if place[0].offset == 90])
    with pytest.raises(CorruptCheckpointError, match="section 90 is damaged: it is truncated"):
        read(DATA[:20], 10, [place for place in sections_of(DATA) if place[0].offset == 90])


def test_an_empty_section_has_the_checksum_of_nothing():
    with pytest.raises(CorruptCheckpointError, match="the empty one is damaged"):
        read(DATA, 10, [(Section(5, 0, 1), "the empty one")])
