"""How much memory an entry takes: each case can be measured, and the page has a row for each."""

from __future__ import annotations

import re
from pathlib import Path

import entry_sizes
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "operating.md"
NUMBERS = range(len(entry_sizes.CASES))


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: entry_sizes.CASES[number].value)
def test_each_case_can_be_filled(number: int) -> None:
    fill = entry_sizes.CASES[number].make()
    fill(0, 3)
    fill(3, 5)


def test_the_page_has_a_row_for_each_case() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("| key | value | bytes |\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (.*) \| (.*) \| [\d,]+ \|$", table, re.MULTILINE)
    assert rows == [(case.key, case.value) for case in entry_sizes.CASES]
