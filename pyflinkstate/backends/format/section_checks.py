"""Checks the sections of a file that is read from its beginning to its end, piece by piece."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable

import attrs

from pyflinkstate.backends.format.state_handles import Section
from pyflinkstate.errors import CorruptCheckpointError


@attrs.define
class _Check:
    """The checksum of a section, as far as it has been read; ``what`` names it in messages."""

    section: Section
    what: str
    checksum: int = 0

    @property
    def end(self) -> int:
        return self.section.offset + self.section.length

    def compare(self) -> None:
        if self.checksum != self.section.checksum:
            raise CorruptCheckpointError(f"{self.what} is damaged: its bytes were altered", file=self.what)


class SectionChecks:
    """Compares the sections of a file with their checksums while the file is read.

    Args:
        sections: the sections, each with its name for messages.

    >>> checks = SectionChecks([(Section(2, 3, zlib.crc32(b"cde")), "the section")])
    >>> checks.take(b"abcd")
    >>> checks.take(b"ef")
    >>> checks.finish()
    """

    def __init__(self, sections: Iterable[tuple[Section, str]]) -> None:
        checks = [_Check(section, what) for section, what in sections]
        checks.sort(key=lambda check: check.section.offset)
        #: Those that have not begun yet, in order, and those that have.
        self._ahead = deque(checks)
        self._begun: list[_Check] = []
        self._position = 0

    def take(self, data: bytes) -> None:
        """Take the next bytes of the file.

        Raises:
            CorruptCheckpointError: a section that ends in them was altered.
        """
        begin, end = self._position, self._position + len(data)
        while self._ahead and self._ahead[0].section.offset < end:
            self._begun.append(self._ahead.popleft())
        view = memoryview(data)
        for check in self._begun:
            part = view[max(check.section.offset - begin, 0) : min(check.end, end) - begin]
            check.checksum = zlib.crc32(part, check.checksum)
        self._position = end
        self._compare_ended()

    def finish(self) -> None:
        """Take the end of the file.

        Raises:
            CorruptCheckpointError: a section goes on beyond it, or was altered.
        """
        self._begun += self._ahead
        self._ahead.clear()
        self._compare_ended()
        if self._begun:
            what = self._begun[0].what
            raise CorruptCheckpointError(f"{what} is damaged: it is truncated", file=what)

    def _compare_ended(self) -> None:
        for check in self._begun:
            if check.end <= self._position:
                check.compare()
        self._begun = [check for check in self._begun if check.end > self._position]
