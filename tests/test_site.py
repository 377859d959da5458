"""The documentation's site, built, and opened from disk in a real Chromium: search, code, pictures."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium_support import headless_chromium, needs_chromium

pytest.importorskip("material", reason="the site is built by mkdocs-material")
pytest.importorskip("selenium.webdriver", reason="the site is looked at with selenium")
pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(280),
    needs_chromium,
]

ROOT = Path(__file__).parents[1]
TOO_WIDE = """
return [...document.querySelectorAll('pre > code')].filter(
    code => code.scrollWidth > code.clientWidth + 1).map(code => code.textContent.slice(0, 80))"""
BEYOND_THE_SCREEN = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with headless_chromium(script_timeout_s=60) as browser:
        yield browser


def show(chromium: Any, page: Path, width: int, scheme: str = "light") -> None:
    """Open a page as on a screen of a width, where people prefer a scheme of colours."""
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    chromium.get(page.as_uri())


def guides(site: Path) -> list[Path]:
    return sorted([*site.glob("*.html"), *site.glob("tutorials/*.html")])


def test_links_to_the_repository_lead_to_copies(site: Path) -> None:
    found = [
        (page, link)
        for page in site.rglob("*.html")
        for link in re.findall(r'href="([^"]*files/[^"]+)"', page.read_text(encoding="utf-8"))
    ]
    assert len(found) >= 10
    assert [link for page, link in found if not (page.parent / link).is_file()] == []


def test_search_works_from_disk(site: Path, chromium: Any) -> None:
    show(chromium, site / "index.html", 1400)
    script = """
const done = arguments[0];
const box = document.querySelector('input.md-search__input');
const list = document.querySelector('.md-search-result__list');
new MutationObserver(() => done(list.textContent)).observe(list, {childList: true});
box.focus();
box.value = 'savepoint';
box.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}));"""
    assert "Checkpoints and recovery" in chromium.execute_async_script(script)


def test_code_is_seen_as_a_whole_from_1000_pixels_on(site: Path, chromium: Any) -> None:
    clipped = {}
    for page in guides(site):
        for width in (1000, 1400):
            show(chromium, page, width)
            if found := chromium.execute_script(TOO_WIDE):
                clipped[page.name, width] = found
    assert clipped == {}


def test_no_page_is_wider_than_a_telephone(site: Path, chromium: Any) -> None:
    wide = []
    for page in guides(site):
        show(chromium, page, 390)
        if chromium.execute_script(BEYOND_THE_SCREEN) > 0:
            wide.append(page.name)
    assert wide == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_have_the_colours_of_the_page(site: Path, chromium: Any, scheme: str) -> None:
    show(chromium, site / "concepts.html", 1000, scheme)
    script = "return getComputedStyle(document.querySelector('img[src$=\"record.svg\"]')).colorScheme"
    assert chromium.execute_script(script) == scheme


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_screenshot_has_the_colours_of_the_page(site: Path, chromium: Any, scheme: str) -> None:
    show(chromium, site / "monitoring.html", 1000, scheme)
    (picture,) = chromium.find_elements("css selector", "picture img")
    assert picture.get_property("currentSrc").endswith(f"page-live-{scheme}.png")
    assert picture.get_property("naturalWidth") > 0
