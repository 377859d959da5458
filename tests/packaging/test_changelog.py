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


#: The section of a release in preparation.
PLANNED = re.compile(r"\d+\.\d+\.\d+ \(not released yet\)")
#: What the files in ``changes`` are called.
FRAGMENT = re.compile(r"README\.md|[\w-]+\.(removed|deprecated|added|changed|fixed)\.md")


def released() -> list[tuple[tuple[int, ...], date]]:
    headings = HEADINGS[1:] if PLANNED.fullmatch(HEADINGS[0]) else HEADINGS
    found = [RELEASE.fullmatch(heading) for heading in headings]
    assert None not in found
    return [((int(m[1]), int(m[2]), int(m[3])), date.fromisoformat(m[4])) for m in found if m]


def test_the_newest_release_comes_first() -> None:
    assert released() == sorted(released(), reverse=True)


def test_the_version_is_that_of_the_newest_section_or_a_later_one() -> None:
    newest, own = (re.match(r"(\d+)\.(\d+)\.(\d+)", text) for text in (HEADINGS[0], pyflinkstate.__version__))
    assert newest is not None
    assert own is not None
    assert tuple(map(int, own.groups())) >= tuple(map(int, newest.groups()))


def test_a_change_has_a_kind() -> None:
    names = [path.name for path in (ROOT / "changes").iterdir()]
    assert [name for name in names if not FRAGMENT.fullmatch(name)] == []


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
