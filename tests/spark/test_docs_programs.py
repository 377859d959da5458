"""The programs in README and docs run, and print what is said there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from doc_blocks import ROOT, blocks_of

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_PROGRAMS = [page for page in PAGES if any(block.is_run for block in blocks_of(page))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.spark
@pytest.mark.usefixtures("no_slot_left", "spark")
@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=name_of)
def test_the_programs_of_a_page(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They share their names, in order. A session is active already, and files are below an empty folder."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of(page):
        code: Any = block.compiled()
        if block.is_run:
            exec(code, names)
            printed = capsys.readouterr().out.splitlines()
            assert block.output is None or printed == block.output, f"{block.page}, line {block.line}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks_are_python(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("```python") == sum(1 for block in blocks_of(page) if block.compiled())


def test_the_first_thirty_lines_of_the_readme_say_it_all() -> None:
    beginning = "\n".join((ROOT / "README.md").read_text().splitlines()[:30])
    for part in (
        "```python",
        "```text",
        "`make demo`",
        "`make test`",
        "**Guaranteed**",
        "**Not guaranteed**",
    ):
        assert part in beginning
