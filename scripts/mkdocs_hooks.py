"""What mkdocs does not do by itself for this site: import paths, references, and nothing from elsewhere."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

#: What programs import from; a name of several doors is shown with the first.
DOORS = [
    "pyflinkstate",
    "pyflinkstate.connectors",
    "pyflinkstate.errors",
    "pyflinkstate.state_access",
    "pyflinkstate.state_access.spark",
    "pyflinkstate.testing",
    "pyflinkstate.common",
    "pyflinkstate.datastream",
    "pyflinkstate.datastream.window",
    "pyflinkstate.datastream.connectors.file_system",
    "pyflinkstate.common.serializer",
    "pyflinkstate.datastream.async_retry_predicates",
    "pyflinkstate.datastream.async_retry_strategies",
    "pyflinkstate.metrics.reporter",
    "pyflinkstate.metrics.otel",
]
#: The heading of an object of the reference, whose anchor is where the object is defined.
_OBJECT = re.compile(
    r'<h(?P<level>\d) id="(?P<path>pyflinkstate[\w.]+)" class="doc doc-heading">.*?</h(?P=level)>', re.DOTALL
)

#: A reference in a docstring, as it comes out of Markdown: the role, and the path in ``code``.
_REFERENCE = re.compile(r":(?:class|meth|func|data|attr|mod):<code>~?([^<]+)</code>")
#: What the theme's script would load for diagrams and for search from disk, which this site does without.
_FOREIGN_SCRIPT = re.compile(r"https://unpkg\.com/[^\"'`]+")
#: What a browser would fetch by itself: scripts, pictures, style sheets, fonts.
_LOADED = re.compile(
    r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*|url\([\"']?(?:https?:)?//"
)


#: A link out of the documentation, to a file of the repository.
_OUT = re.compile(r"\]\(((?:\.\./)+[^)\s#]+)\)")
_ROOT = Path(__file__).resolve().parents[1]


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Have links to files of the repository lead to copies in the site, which browsers show as text."""
    from mkdocs.structure.files import File  # tests use the rest of this file, and have no mkdocs

    folder = Path(page.file.abs_src_path).parent

    def link(found: re.Match[str]) -> str:
        target = (folder / found[1]).resolve()
        if target.is_relative_to(config["docs_dir"]) or not target.is_file():
            return found[0]
        copy = f"files/{target.relative_to(_ROOT).as_posix()}.txt"
        if files.get_file_from_path(copy) is None:
            files.append(File.generated(config, copy, content=target.read_bytes()))
        return f"]({'../' * page.file.src_uri.count('/')}{copy})"

    return _OUT.sub(link, markdown)


@cache
def import_paths() -> dict[str, str]:
    """Return the lines that import public names, by the places where these are defined."""
    found: dict[str, str] = {}
    for door in DOORS:
        module = importlib.import_module(door)
        for name in getattr(module, "__all__", None) or vars(module):
            value = getattr(module, name)
            place = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', name)}"
            if place.startswith("pyflinkstate."):
                found.setdefault(place, f"from {door} import {name}")
    return found


def with_import_path(heading: re.Match[str]) -> str:
    """Return a heading with the line below it that imports the object, where a program can import it."""
    line = import_paths().get(heading["path"])
    return heading[0] if line is None else f"{heading[0]}\n<p><code>{line}</code></p>"


def on_page_content(html: str, **_: Any) -> str:
    """Show import paths, and a reference by its last name: ``:meth:`DataStream.key_by``` as ``key_by``."""
    html = _OBJECT.sub(with_import_path, html)
    html = _REFERENCE.sub(lambda found: f"<code>{found[1].rpartition('.')[2]}</code>", html)
    return html.replace("::</p>", ":</p>")


def on_post_build(config: Any, **_: Any) -> None:
    """Take other hosts out of the theme's scripts, and see that pages load nothing from there."""
    site = Path(config["site_dir"])
    for script in site.rglob("*.js"):
        text = script.read_text(encoding="utf-8")
        if _FOREIGN_SCRIPT.search(text):
            script.write_text(_FOREIGN_SCRIPT.sub("data:,", text), encoding="utf-8")
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        if found := _LOADED.search(path.read_text(encoding="utf-8")):
            raise SystemExit(f"{path} loads something from elsewhere: {found[0]}")
