"""The example of unit tests passes, and the page of examples names each program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
sys.path.insert(0, str(EXAMPLES))

import test_an_operator  # noqa: E402 - it lies among the examples

TESTS = [test for name, test in vars(test_an_operator).items() if name.startswith("test_")]
#: What programs import.
HELPERS = {"command_line", "demo", "made_up_retail", "retail"}


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.__name__)
def test_it_passes(test: Callable[[], None]) -> None:
    test()


def test_the_page_names_each_program() -> None:
    page = (ROOT / "docs" / "examples.md").read_text()
    programs = {path.stem for path in EXAMPLES.glob("*.py")} - HELPERS
    assert TESTS
    named = {line.split("`")[1][:-3] for line in page.splitlines() if line.startswith("| [`")}
    assert programs == named
