"""Programs of the documentation can be copied: what a page or a section has makes the names that it uses."""

from __future__ import annotations

import builtins
import re
import symtable
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from doc_blocks import ROOT, Block, blocks_in, blocks_of

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
TASKS = DOCS / "newcomer-tasks.md"
#: What a page says at its top if its sections cannot be copied alone.
TOGETHER = "programs of this page belong together"
#: Links of the list of tasks that lead to a section, by page.
SECTIONS = sorted(set(re.findall(r"\]\(([\w/.-]+\.md)#([\w-]+)\)", TASKS.read_text(encoding="utf-8"))))

_CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^(#+) +(.+?) *$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def missing_names(blocks: Iterable[Block]) -> set[str]:
    """Return the names that programs use, and that nothing in them makes."""
    top = symtable.symtable("\n".join(block.code for block in blocks if block.is_run), "page", "exec")
    made = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    used = {
        symbol.get_name()
        for table in tables_in(top)
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (table is top or symbol.is_global())
    }
    return used - made - set(dir(builtins))


def tables_in(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from tables_in(child)


def section_of(text: str, anchor: str) -> str:
    """Return the text from a heading to the next one that is no lower."""
    without_comments = _CODE.sub(lambda code: code[0].replace("#", "~"), text)
    headings = list(_HEADING.finditer(without_comments))
    (at,) = (at for at, heading in enumerate(headings) if anchor_of(heading[2]) == anchor)
    depth = len(headings[at][1])
    ends = (heading.start() for heading in headings[at + 1 :] if len(heading[1]) <= depth)
    return text[headings[at].start() : next(ends, len(text))]


def anchor_of(heading: str) -> str:
    return re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_programs_of_a_page_make_all_names_that_they_use(page: Path) -> None:
    assert missing_names(blocks_of(page)) == set()


@pytest.mark.parametrize(("page", "anchor"), SECTIONS)
def test_a_section_can_be_copied_alone_or_its_page_says_that_it_cannot(page: str, anchor: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    introduction = text.partition("\n## ")[0]
    missing = missing_names(blocks_in(section_of(text, anchor), page))
    assert not missing or TOGETHER in introduction, f"{page}#{anchor} does not say where these come from"
