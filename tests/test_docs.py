"""The documentation hangs together: links and pictures are there, and the navigation names every page."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pyflinkstate
import pyflinkstate.common
import pyflinkstate.common.serializer
import pyflinkstate.datastream
import pyflinkstate.datastream.async_retry_predicates
import pyflinkstate.datastream.async_retry_strategies
import pyflinkstate.datastream.connectors.file_system
import pyflinkstate.datastream.window
import pyflinkstate.metrics
import pyflinkstate.metrics.otel
import pyflinkstate.metrics.reporter
import pyflinkstate.state_access
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
    pyflinkstate.common.serializer,
    pyflinkstate.datastream,
    pyflinkstate.datastream.async_retry_predicates,
    pyflinkstate.datastream.async_retry_strategies,
    pyflinkstate.datastream.connectors.file_system,
    pyflinkstate.datastream.window,
    pyflinkstate.metrics,
    pyflinkstate.metrics.otel,
    pyflinkstate.metrics.reporter,
    pyflinkstate.state_access,
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
    for name in getattr(door, "__all__", [name for name in vars(door) if not name.startswith("_")]):
        module = getattr(getattr(door, name), "__module__", None) or ""  # a number has none
        of_module = getattr(getattr(door, name), "__qualname__", name)
        is_own = module.startswith("pyflinkstate")  # Python's own futures are documented elsewhere
        assert not is_own or {module, f"{module}.{of_module}"} & named, name


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lines_of_code_fit_on_the_page(page: Path) -> None:
    """From 1,000 pixels on; `test_site.py` looks at them in a browser."""
    blocks = re.findall(r"^```.*?^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert [line for block in blocks for line in block.splitlines() if len(line) > 112] == []


def test_the_newcomers_have_forty_tasks_each_with_its_page() -> None:
    page = (DOCS / "newcomer-tasks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w.+) \| (.+) \|$", page, re.MULTILINE)[1:]
    assert len(rows) == 40
    assert [task for task, where in rows if not _LINK.search(where)] == []


# --- tables that must not forget anything ----------------------------------------------------------------

#: Settings that have no effect here, and second names of others.
NOT_IN_THE_TABLE = {
    "enable_unaligned_checkpoints",
    "set_aligned_checkpoint_timeout",
    "set_alignment_timeout",
    "set_checkpointing_mode",
    "set_checkpoint_storage_dir",
    "set_fail_on_checkpointing_errors",
    "set_force_unaligned_checkpoints",
}
#: The methods by which a stream gets a sink that the user does not make.
OUTPUTS = {"print", "execute_and_collect", "to_rdd", "to_dataframe", "foreach_epoch"}


def named_in_table(page: str, head: str) -> set[str]:
    """Return the names in the first column of the table whose head begins so."""
    table = (DOCS / page).read_text(encoding="utf-8").partition(f"\n| {head} |")[2].partition("\n\n")[0]
    cells = [line.split(" | ")[0] for line in table.splitlines()[2:]]
    return {
        name for cell in cells for code in re.findall(r"`([^`]+)`", cell) for name in re.findall(r"\w+", code)
    }


def test_the_table_of_types_has_every_type() -> None:
    types = {name for name in vars(pyflinkstate.Types) if not name.startswith("_")}
    assert types - named_in_table("state.md", "type") == set()


def test_the_table_of_settings_has_every_setting_of_checkpoints() -> None:
    methods = {name for name in vars(pyflinkstate.CheckpointConfig) if name.startswith(("set_", "enable_"))}
    assert methods - named_in_table("checkpoints.md", "setting") == NOT_IN_THE_TABLE


def test_the_table_of_outputs_has_every_sink() -> None:
    public = [getattr(pyflinkstate, name) for name in pyflinkstate.__all__]
    sinks = {one.__name__ for one in public if inspect.isclass(one) and hasattr(one, "rewind")}
    interfaces = {"RunAwareSink", "Sink", "StagedFilesSink", "StagedSink", "TransactionalSink"}
    assert interfaces <= sinks
    assert (sinks - interfaces | OUTPUTS) - named_in_table("checkpoints.md", "sink") == set()


GUIDES = [ROOT / "CONTRIBUTING.md", DOCS / "ARCHITECTURE.md"]
#: A file, with its folder or without, or a folder.
_NAMED_PATH = re.compile(
    r"`([\w*/.-]+\.(?:py|md|toml|yml)|(?:pyflinkstate|tests|docs|scripts|runtime|monitor)/[\w*/.-]*)`"
)


def is_there(named: str) -> bool:
    roots = [ROOT, ROOT / "pyflinkstate"]
    folders = [ROOT / folder for folder in ("pyflinkstate", "tests", "scripts", "benchmarks")]
    by_its_name = [] if "/" in named else [found for folder in folders for found in folder.rglob(named)]
    return bool(by_its_name) or any(list(root.glob(named)) for root in roots)


@pytest.mark.parametrize("guide", GUIDES, ids=name_of)
def test_files_that_a_guide_names_are_there(guide: Path) -> None:
    named = set(_NAMED_PATH.findall(guide.read_text(encoding="utf-8")))
    assert len(named) > 10
    assert [name for name in sorted(named) if not is_there(name)] == []


# --- import paths ----------------------------------------------------------------------------------------

#: What the reference shows and no program imports: public methods return it, or pass it to a function.
HANDED_OUT = {
    "pyflinkstate.api.context.RawKeyedStateOutput",
    "pyflinkstate.api.context.RawOperatorStateOutput",
    "pyflinkstate.api.ttl.StateTtlConfigBuilder",
    "pyflinkstate.api.time.WatermarkAlignment",
    "pyflinkstate.runtime.master.observe.CheckpointPart",
    "pyflinkstate.runtime.master.observe.JobEdge",
    "pyflinkstate.runtime.master.observe.JobVertex",
    "pyflinkstate.runtime.sinks.text_file_sink.RowFormatBuilder",
    "pyflinkstate.runtime.sinks.text_file_sink.RowFormatFileSink",
    "pyflinkstate.runtime.wire.messages.SubtaskStatus",
    "pyflinkstate.state_access.live.LiveTable",
}
INDEX = DOCS / "api" / "index.md"


@cache
def hooks() -> Any:
    """The module that the site is built with."""
    spec = importlib.util.spec_from_file_location("mkdocs_hooks", ROOT / "scripts" / "mkdocs_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(directive: str) -> Iterator[str]:
    """Yield the objects that a directive of the reference shows."""
    try:
        module = importlib.import_module(directive)
    except ImportError:
        yield directive
        return
    for name, value in vars(module).items():
        is_own = inspect.isclass(value) or inspect.isfunction(value)
        if is_own and value.__module__ == directive and value.__doc__ and not name.startswith("_"):
            yield f"{directive}.{name}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "api"], ids=name_of)
def test_the_reference_shows_no_internals(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    objects = {name for directive in _DOCUMENTED.findall(text) for name in shown(directive)}
    left_out = {name for name in objects if f'"!^{name.rpartition(".")[2]}$"' in text}
    assert objects - left_out - HANDED_OUT - set(hooks().import_paths()) == set()


def test_a_name_of_the_reference_is_shown_with_the_line_that_imports_it() -> None:
    place = "pyflinkstate.runtime.master.observe.JobListener"
    heading = f'<h2 id="{place}" class="doc doc-heading">\n<span>JobListener</span>\n</h2>'
    method = f'<h3 id="{place}.on_epoch" class="doc doc-heading">on_epoch</h3>'
    imported = "<p><code>from pyflinkstate import JobListener</code></p>"
    assert hooks().on_page_content(heading + method) == f"{heading}\n{imported}{method}"


def test_each_line_imports_what_it_says() -> None:
    for line in hooks().import_paths().values():
        exec(line, {})


def test_the_overview_has_every_public_name_once() -> None:
    named = re.findall(r"`(\w+)`", INDEX.read_text(encoding="utf-8").partition("|---|---|")[2])
    assert sorted(set(named) & set(pyflinkstate.__all__)) == pyflinkstate.__all__
    assert len([name for name in named if name in pyflinkstate.__all__]) == len(pyflinkstate.__all__)


def test_the_overview_names_what_the_page_has() -> None:
    rows = re.compile(r"^\| \[[^\]]+\]\((\w+\.md)\) \| (.*) \|$", re.MULTILINE)
    for page, names in rows.findall(INDEX.read_text(encoding="utf-8")):
        text = (INDEX.parent / page).read_text(encoding="utf-8")
        objects = {name for directive in _DOCUMENTED.findall(text) for name in shown(directive)}
        last_names = {name.rpartition(".")[2] for name in objects}
        values = [getattr(pyflinkstate, name, None) for name in re.findall(r"`(\w+)`", names)]
        own = {value.__qualname__ for value in values if is_of_this_package(value)}
        assert own <= last_names, page


def is_of_this_package(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).startswith("pyflinkstate")


def test_the_home_of_the_documentation_leads_as_the_readme_does() -> None:
    """DataFrames first, then Flink."""
    home, readme = ((folder / name).read_text(encoding="utf-8") for folder, name in HOMES)
    assert [programs(home)[0], headings(home)[0]] == [programs(readme)[0], headings(readme)[0]]
    assert "keyed_map" in programs(home)[0]


HOMES = [(DOCS, "index.md"), (ROOT, "README.md")]


def programs(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def headings(text: str) -> list[str]:
    return re.findall(r"^## (.*)$", text, re.MULTILINE)


def test_the_package_says_its_version_and_that_it_has_types() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", pyflinkstate.__version__)
    assert (Path(pyflinkstate.__file__).parent / "py.typed").is_file()
