"""The Python blocks of a page, and what each is said to print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import attrs

ROOT = Path(__file__).parents[2]
#: A block after this comment is compiled, and not run.
NOT_RUN = "<!-- not run -->"
#: An empty line, perhaps, between a block and what it prints.
_BLOCK = re.compile(
    rf"(?P<mark>{NOT_RUN}\n+)?^```python\n(?P<code>.*?)^```\n(?:\n?^```text\n(?P<output>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)
#: So several lines are shown in one.
_ONE_LINE_EACH = re.compile(r" {3,}\(one on each line\)\n")


@attrs.frozen
class Block:
    """One block.

    Attributes:
        page: where it is from.
        line: of the page, at which its code begins, from 1.
        code: the program.
        is_run: it stands for itself, and can be run.
        output: the lines that it is said to print; None where nothing is said.
    """

    page: str
    line: int
    code: str
    is_run: bool
    output: list[str] | None

    def compiled(self) -> object:
        """Return the code, whose errors name page and line."""
        return compile("\n" * (self.line - 1) + self.code, self.page, "exec")


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the blocks in their order."""
    yield from blocks_in(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)))


def blocks_in(text: str, name: str) -> Iterator[Block]:
    """Yield the blocks of a text, such as a section; the name is what errors call it."""
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("code")) + 1
        yield Block(name, line, found["code"], found["mark"] is None, _lines(found["output"]))


def _lines(output: str | None) -> list[str] | None:
    if output is None:
        return None
    if _ONE_LINE_EACH.search(output):
        return re.split(" {3}", _ONE_LINE_EACH.sub("", output))
    return output.splitlines()
