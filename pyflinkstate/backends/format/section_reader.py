"""Reads the head and the sections of a snapshot file, which ``section_writer`` wrote."""

from __future__ import annotations

from pyflinkstate.backends.format.framing import PREFIX_SIZE, check_section, head_size
from pyflinkstate.backends.format.state_handles import Section, StreamStateHandle
from pyflinkstate.backends.format.streams import StateReader


def read_head(reader: StateReader, stream: StreamStateHandle, magic: bytes) -> bytes:
    """Return the bytes of a file's head; see :func:`head_size` for the errors."""
    prefix = reader.read(stream, 0, PREFIX_SIZE)
    return reader.read(stream, 0, head_size(prefix, magic, reader.describe(stream)))


def read_section(reader: StateReader, stream: StreamStateHandle, section: Section, what: str) -> bytes:
    """Return the bytes of a section; raise ``CorruptCheckpointError`` if they were altered."""
    data = reader.read(stream, section.offset, section.length)
    check_section(data, section.checksum, what)
    return data
