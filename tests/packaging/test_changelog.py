"""The form of the change notes, and what they and other documents say of versions."""

from __future__ import annotations

import re
from datetime import date
from importlib.metadata import requires
from pathlib import Path

import pyflinkstate

ROOT = Path(__file__).parents[2]
HEADINGS = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+) \((\d{4}-\d{2}-\d{2})\)")


def released() -> list[tuple[tuple[int, ...], date]]:
    found = [RELEASE.fullmatch(heading) for heading in HEADINGS[1:]]
    assert None not in found
    return [((int(m[1]), int(m[2]), int(m[3])), date.fromisoformat(m[4])) for m in found if m]


def test_what_is_not_released_comes_first_and_then_the_newest_release() -> None:
    assert HEADINGS[0] == "Unreleased"
    assert released() == sorted(released(), reverse=True)


def test_the_version_is_the_newest_release_or_the_next_one() -> None:
    own = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", pyflinkstate.__version__)
    assert own is not None
    assert not released() or tuple(map(int, own.groups())) >= released()[0][0]


def test_the_page_on_versions_has_the_minimums_of_the_metadata() -> None:
    """A row of its table begins with a name and the oldest version."""
    rows = dict(
        re.findall(
            r"^\| (\w+)[^|]* \| ([\d.]+) \|", (ROOT / "docs" / "versions.md").read_text(), re.MULTILINE
        )
    )
    needed = [each for each in requires("pyflinkstate") or [] if "extra ==" not in each]
    minimums = dict(each.split(">=") for each in needed)
    minimums["Spark"] = minimums.pop("pyspark")
    assert {name: rows[name] for name in minimums} == minimums
    python = re.search(
        r'^requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    assert python is not None
    assert rows["Python"] == python[1]
