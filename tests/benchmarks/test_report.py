"""The documents say what the recorded results are, and can be drawn whatever is recorded."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import peers
import pytest
from draw import PAGES, ROOT, documents, filled, stale, write
from engines import workload
from nexmark_suite import queries
from report.charts import CHARTS, drawn, file_of, in_chart
from report.numbers import asked, shown
from report.pictures import MOST_LETTERS
from report.programs import (
    BENCHMARKS,
    ENGINES,
    MARKS,
    OPERATORS,
    QUERIES,
    WORKLOADS,
    Mark,
    lower_is_better,
)
from report.results import RESULTS, figure_of, read_all
from report.tables import NOT_YET, PARTS, missed
from report_support import begun, result_of, whole

RECORDED = read_all(RESULTS)
PAGE = (ROOT / PAGES[0]).read_text(encoding="utf-8")
WHOLE = {name: whole(name) for name in BENCHMARKS}
SIZES = ("--records", "--entries", "--events", "--keys", "--few", "--epochs", "--changes", "--rate")
_EXPLAINED = re.compile(r"^- \*\*`(\w+)` `(\w+)`\*\*", re.MULTILINE)


# --- what is committed -------------------------------------------------------------------------------------


def test_the_documents_are_those_of_the_results() -> None:
    assert stale(documents(RECORDED), ROOT) == [], "run python benchmarks/draw.py"


def test_no_table_of_the_page_is_empty() -> None:
    assert re.findall(r"^.*\n\|[-|]+\|\n(?!\|)", PAGE, re.MULTILINE) == []


def test_every_missed_mark_has_its_reason() -> None:
    """An entry begins with ``- **`benchmark` `figure`**``."""
    section = PAGE.partition("### Where a mark is missed")[2].partition("\n## ")[0]
    assert set(_EXPLAINED.findall(section)) == {(mark.benchmark, mark.key) for mark, _ in missed(RECORDED)}


@pytest.mark.parametrize("name", RECORDED)
def test_what_is_recorded_is_known_whole_and_has_what_marks_name(name: str) -> None:
    result = RECORDED[name]
    assert {mark.key for mark in MARKS if mark.benchmark == name} <= result.figures().keys()
    assert (RESULTS / f"{name}.json").read_text(encoding="utf-8") == result.to_json(), "it sums its runs up"
    given = result.arguments[len(BENCHMARKS[name].always) :]
    assert not set(given) & {*SIZES, "--workload", "--engine", "--query", "--only"}
    assert len(result.runs) >= 3


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: f"{mark.benchmark}-{mark.key}")
def test_a_program_prints_what_a_mark_names(mark: Mark) -> None:
    text = (ROOT / "benchmarks" / f"{BENCHMARKS[mark.benchmark].program}.py").read_text(encoding="utf-8")
    work, is_times, engine = mark.key.partition("_times_")
    parts = [work, engine] if is_times else [mark.key.removeprefix("ratio_")]
    assert all(part in text or part in WORKLOADS for part in parts)


def test_the_page_has_a_place_for_every_part() -> None:
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    places = re.findall(r"<!-- drawn by benchmarks/draw\.py: ([\w ]+) -->", text)
    assert sorted(places) == sorted(PARTS)
    assert text.count("<!-- drawn: end -->") == len(places)


def test_names_are_those_of_the_programs() -> None:
    assert {number: query.name for number, query in queries.QUERIES.items()} == QUERIES
    text = (ROOT / "benchmarks" / "operators.py").read_text(encoding="utf-8").partition("\nOPERATORS:")[2]
    named = re.findall(r'^    "(\w+)": \(', text.partition("\n}\n")[0], re.MULTILINE)
    assert [*OPERATORS] == ["value", *named]
    assert ENGINES.keys() == peers.ENGINE_BY_NAME.keys()
    assert tuple(WORKLOADS) == workload.WORKLOADS


# --- what is drawn -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PARTS)
class TestParts:
    def test_it_is_drawn_of_everything_and_says_when_nothing_is_recorded(self, name: str) -> None:
        text = "\n".join(PARTS[name](WHOLE))
        assert text
        assert NOT_YET not in text
        assert NOT_YET in "\n".join(PARTS[name]({}))

    @pytest.mark.parametrize("missing", BENCHMARKS)
    def test_it_is_drawn_when_something_is_missing(self, name: str, missing: str) -> None:
        assert PARTS[name]({other: result for other, result in WHOLE.items() if other != missing})


def test_all_rows_of_a_table_have_its_columns() -> None:
    for make in PARTS.values():
        for block in "\n".join(make(WHOLE)).split("\n\n"):
            rows = [line for line in block.splitlines() if line.startswith("|")]
            assert len({row.count("|") for row in rows}) <= 1, rows


def test_the_worst_run_decides() -> None:
    runs = [{"ratio_ttl": ratio, "ttl_records_per_s": 1} for ratio in (0.8, 0.69, 0.9)]
    results = {"operators": result_of("operators", *runs)}
    ((mark, figure),) = missed(results)
    assert (mark.key, figure.worst, figure.median) == ("ratio_ttl", 0.69, 0.8)
    assert "| at least 0.7: **missed** |" in "\n".join(PARTS["operators"](results))
    assert missed({"epoch_cost": result_of("epoch_cost", {"epoch_p50_ms": 150.0})}) == []


def test_a_wrong_query_is_seen() -> None:
    figures = {"all_right": False, "q3_right": False, "q3_records_per_s_per_core": 7}
    result = {"nexmark": result_of("nexmark", {**figures, "all_right": True, "q3_right": True}, figures)}
    assert "**wrong**" in "\n".join(PARTS["nexmark"](result))
    assert [mark.key for mark, _ in missed(result)] == ["all_right"]


def test_every_work_of_peers_is_recorded() -> None:
    always = [each.always for each in BENCHMARKS.values() if each.program == "peers"]
    assert always == [("--workload", work) for work in WORKLOADS]


def test_results_of_two_machines_are_kept_apart() -> None:
    other = begun("snapshot", machine={**begun("snapshot").machine, "cpu": "Another"})
    results = {"snapshot": other.with_run(WHOLE["snapshot"].runs[0]), "operators": WHOLE["operators"]}
    lines = PARTS["conditions"](results)
    assert [line[:12] for line in lines[:2]] == ["- Another (x", "- A Processo"]
    assert lines[0].endswith(": `snapshot` (`ccccccc`, 1 run).")


# --- charts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHARTS)
class TestCharts:
    def test_everything_is_inside_and_labels_have_room(self, name: str) -> None:
        root = ElementTree.fromstring(drawn(WHOLE)[file_of(name)])
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        for rect in root.iter("{http://www.w3.org/2000/svg}rect"):
            assert float(rect.attrib["x"]) + float(rect.attrib["width"]) <= width
            assert float(rect.attrib["y"]) + float(rect.attrib["height"]) <= height
        texts = [text for text in root.iter("{http://www.w3.org/2000/svg}text") if "class" not in text.attrib]
        assert max(len(text.text or "") for text in texts) <= MOST_LETTERS

    def test_figures_below_zero_are_drawn(self, name: str) -> None:
        """A difference of two short runs can be negative."""
        below = {}
        for each in in_chart(name, WHOLE):
            runs = WHOLE[each].runs[0].figures
            figures = {key: -1.0 if isinstance(value, float) else value for key, value in runs.items()}
            below[each] = result_of(each, figures)
        ElementTree.fromstring(drawn(below)[file_of(name)])


def test_a_chart_without_results_is_removed(tmp_path: Path) -> None:
    write(documents(WHOLE), tmp_path)
    assert {path.name for path in (tmp_path / "docs" / "images").iterdir()} == {file_of(n) for n in CHARTS}
    write(documents({"nexmark": WHOLE["nexmark"]}), tmp_path)
    assert [path.name for path in (tmp_path / "docs" / "images").iterdir()] == ["benchmark-nexmark.svg"]
    assert stale(documents({"nexmark": WHOLE["nexmark"]}), tmp_path) == []
    assert len(stale(documents({}), tmp_path)) == 3


def test_drawing_twice_changes_nothing() -> None:
    once = filled(PAGE, WHOLE)
    assert filled(once, WHOLE) == once
    assert filled(once, {}) == filled(PAGE, {})


# --- numbers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1_234_567, "1,230,000"),
        (691, "691"),
        (149.96, "150"),
        (27.96, "28.0"),
        (1.084, "1.08"),
        (0.8481, "0.848"),
        (0.00572, "0.00572"),
        (0, "0"),
        (-0.5, "-0.500"),
        (True, "yes"),
    ],
)
def test_three_digits_are_shown(value: float, text: str) -> None:
    assert shown(value) == text


def test_what_is_asked_is_shown_as_it_was_written() -> None:
    assert [asked(value) for value in (1_500_000, 0.85, True)] == ["1,500,000", "0.85", "yes"]


@pytest.mark.parametrize(
    ("key", "is_lower"),
    [
        ("epoch_p50_ms", True),
        ("sync_ms_1m", True),
        ("one_key_cpu_s", True),
        ("diff_peak_mb", True),
        ("incremental_share", True),
        ("rmw_map_ratio", True),
        ("ratio_map", False),
        ("owner_share", False),
        ("write_entries_per_s", False),
        ("to_arrow_entries_per_cpu_s", False),
        ("q3_records_per_s_per_core", False),
        ("timers_times_bytewax", False),
    ],
)
def test_what_is_better(key: str, is_lower: bool) -> None:
    assert lower_is_better(key) == is_lower
    assert figure_of(key, (3, 1, 2)).worst == (3 if is_lower else 1)
