"""What mkdocs does not do by itself for this site: references in docstrings, and nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

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


def on_page_content(html: str, **_: Any) -> str:
    """Show a reference by its last name: ``:meth:`DataStream.key_by``` as ``key_by``."""
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
