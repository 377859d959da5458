"""Reads the head and the sections of a snapshot file, which ``section_writer`` wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyflinkstate.backends.format.framing import PREFIX_SIZE, check_section, head_size
from pyflinkstate.backends.format.state_handles import Section, StreamStateHandle
from pyflinkstate.backends.format.streams import StateReader

#: Adjacent sections are read in one go, up to this size.
READ_BYTES = 8 * 1024 * 1024


def read_head(reader: StateReader, stream: StreamStateHandle, magic: bytes) -> bytes:
    """Return the bytes of a file's head; see :func:`head_size` for the errors."""
    prefix = reader.read(stream, 0, PREFIX_SIZE)
    return reader.read(stream, 0, head_size(prefix, magic, reader.describe(stream)))


def read_section(reader: StateReader, stream: StreamStateHandle, section: Section, what: str) -> bytes:
    """Return the bytes of a section; raise ``CorruptCheckpointError`` if they were altered."""
    data = reader.read(stream, section.offset, section.length)
    check_section(data, section.checksum, what)
    return data


def read_sections(
    reader: StateReader, stream: StreamStateHandle, sections: Mapping[int, Section]
) -> Iterator[tuple[int, memoryview]]:
    """Yield the key groups of ``sections`` in order, each with the bytes of its section, not yet checked."""
    for together in _adjacent(sections):
        begin, last = together[0][1].offset, together[-1][1]
        data = memoryview(reader.read(stream, begin, last.offset + last.length - begin))
        for key_group, section in together:
            start = section.offset - begin
            yield key_group, data[start : start + section.length]


def _adjacent(sections: Mapping[int, Section]) -> Iterator[list[tuple[int, Section]]]:
    """Group key groups whose sections follow each other in the file."""
    together: list[tuple[int, Section]] = []
    for key_group, section in sorted(sections.items()):
        if together:
            last = together[-1][1]
            size = section.offset + section.length - together[0][1].offset
            if last.offset + last.length != section.offset or size > READ_BYTES:
                yield together
                together = []
        together.append((key_group, section))
    if together:
        yield together
