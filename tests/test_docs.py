"""The documentation hangs together: links and pictures are there, and the navigation names every page."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

import pytest

import pyflinkstate
import pyflinkstate.common
import pyflinkstate.datastream
import pyflinkstate.datastream.connectors.file_system
import pyflinkstate.datastream.window
import pyflinkstate.state_access
import pyflinkstate.state_access.flink_names
import pyflinkstate.state_access.spark
import pyflinkstate.testing

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
IMAGES = sorted(DOCS.rglob("*.svg"))
#: What programs import from.
DOORS = [
    pyflinkstate,
    pyflinkstate.common,
    pyflinkstate.datastream,
    pyflinkstate.datastream.connectors.file_system,
    pyflinkstate.datastream.window,
    pyflinkstate.state_access,
    pyflinkstate.state_access.flink_names,
    pyflinkstate.state_access.spark,
    pyflinkstate.testing,
]
NAVIGATION = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2].partition("\nplugins:\n")[0]

_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_DOCUMENTED = re.compile(r"^::: (pyflinkstate[\w.]*)$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def links(page: Path) -> list[str]:
    found = _LINK.findall(_CODE.sub("", page.read_text(encoding="utf-8")))
    return [link for link in found if "://" not in link]


def anchors(page: Path) -> set[str]:
    headings = _HEADING.findall(_CODE.sub(lambda code: code[0].strip("`"), page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
        assert page.parent == ROOT or target.is_relative_to(ROOT), f"{link} is not part of the repository"
        assert page.parent == ROOT or target.is_file(), f"{link}: the site has no such page"


def test_the_navigation_names_every_page() -> None:
    named = re.findall(r"[\w/.-]+\.md", NAVIGATION)
    assert sorted(named) == sorted(str(page.relative_to(DOCS)) for page in PAGES)


def test_every_image_is_shown() -> None:
    shown = {(page.parent / link).resolve() for page in PAGES for link in links(page)}
    assert set(IMAGES) <= shown


@pytest.mark.parametrize("image", IMAGES, ids=name_of)
def test_images_are_whole_and_load_nothing(image: Path) -> None:
    root = ElementTree.fromstring(image.read_text(encoding="utf-8"))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    text = image.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert "://" not in text
    assert "<title>" in text
    assert "@media (prefers-color-scheme: dark)" in text


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_the_reference_has_every_public_name(door: ModuleType) -> None:
    """Each is named by a directive, or its module is."""
    named = {name for page in PAGES for name in _DOCUMENTED.findall(page.read_text(encoding="utf-8"))}
    for name in door.__all__:
        module = getattr(getattr(door, name), "__module__", None) or ""  # a number has none
        is_own = module.startswith("pyflinkstate")  # Python's own futures are documented elsewhere
        assert not is_own or {module, f"{module}.{getattr(door, name).__qualname__}"} & named, name


def test_the_newcomers_have_forty_tasks_each_with_its_page() -> None:
    page = (DOCS / "newcomer-tasks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| (.+) \| (.+) \|$", page, re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, 41))
    assert [task for _, task, where in rows if not _LINK.search(where)] == []
