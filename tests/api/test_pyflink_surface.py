"""PyFlink's public names are here, but for those that have a row in ``docs/differences.md``."""

import json
from pathlib import Path

import pytest
from pyflink_surface import (
    DIFFERENCES,
    LEFT_OUT,
    REFERENCE,
    Finding,
    Row,
    call_misfit,
    constructor_misfit,
    counts,
    findings,
    is_left_out,
    left_out,
    misfit,
    report,
)

import pyflinkstate
import pyflinkstate.common
import pyflinkstate.datastream
import pyflinkstate.datastream.connectors.base
import pyflinkstate.metrics
from pyflinkstate import JobStatus, RowFieldExtractorSchema, StreamExecutionEnvironment, Trigger, ValueState

SHARED = Path(__file__).parents[2].parent / "shared" / "reference" / "pyflink_api_full.json"

#: The modules that are about keyed streams and state.
KEYED = [
    "common.time",
    "common.typeinfo",
    "common.watermark_strategy",
    "datastream.data_stream",
    "datastream.state",
    "datastream.timerservice",
    "datastream.window",
]
#: Each name, and whether anything of it is missing. What is not there is not a module of its own.
FINDINGS = list(findings())


def test_every_name_is_there_or_has_a_row() -> None:
    print(f"\n{report()}")
    missing = [f"{one.key}: {one.missing}" for one in FINDINGS if one.missing and not is_left_out(one)]
    assert missing == []


@pytest.mark.parametrize("row", LEFT_OUT, ids=lambda row: f"{row.module}.{row.name}")
def test_nothing_that_has_a_row_is_there(row: Row) -> None:
    spoken_of = [one for one in FINDINGS if row.covers(one)]
    assert spoken_of, "PyFlink has no such name"
    there = [one.key for one in spoken_of if not one.missing]
    assert there == []


def test_no_two_rows_speak_of_one_name() -> None:
    for finding in FINDINGS:
        assert len([row for row in LEFT_OUT if row.covers(finding)]) <= 1, finding


def test_every_row_of_the_document_is_read() -> None:
    text = DIFFERENCES.read_text()
    lines = [
        line for line in text.partition("## Names that are not here")[2].splitlines() if line[:3] == "| `"
    ]
    assert sum(line.partition("| `")[2].count("`, `") + 1 for line in lines) == len(LEFT_OUT) > 60
    assert all(len(row.why) > 10 for row in LEFT_OUT)


def test_the_names_are_those_of_the_reference() -> None:
    if not SHARED.exists():
        pytest.skip("the reference is not on this machine")
    assert json.loads(SHARED.read_text()) == REFERENCE


def test_all_doors_and_modules_are_compared() -> None:
    compared = {one.module for one in FINDINGS}
    assert compared == {
        name.removeprefix("pyflink.") for part in ("doors", "modules") for name in REFERENCE[part]
    }


@pytest.mark.parametrize("module", KEYED)
def test_of_each_keyed_module_nine_names_in_ten_are_there(module: str) -> None:
    there, of_all = counts()[module]
    assert there >= 0.88 * of_all


class TestTheComparison:
    """It must find what is not as it is in PyFlink."""

    @pytest.mark.parametrize(
        ("cls", "member", "expected", "found"),
        [
            (ValueState, "no_such_member", [], "it is not there"),
            (ValueState, "update", ["val"], "parameters ['value'], not ['val']"),
            (ValueState, "update", ["value", "more"], "parameters ['value'], not ['value', 'more']"),
            (ValueState, "update", [], "it needs ['value'] as well"),
            (ValueState, "update", ["value"], ""),
            (JobStatus, "RUNNING", [], "it cannot be called"),
            (Trigger, "on_element", "class", "it is no class"),
        ],
    )
    def test_of_members(self, cls, member, expected, found) -> None:
        assert misfit(cls, member, expected) == found

    def test_java_objects_are_no_parameters_of_constructors(self) -> None:
        assert constructor_misfit(RowFieldExtractorSchema, ["field_index", "j_schema"]) == ""
        assert constructor_misfit(RowFieldExtractorSchema, ["index"])
        assert constructor_misfit(RowFieldExtractorSchema, ["j_schema", "anything"]) == ""

        assert call_misfit(lambda first, *more, **others: None, ["first"]) == ""

    def test_a_class_left_out_stands_for_its_members_and_in_the_doors_that_pass_it_on(self) -> None:
        assert is_left_out(Finding("datastream.window", "Min.reduce", "its class is not there"))
        assert not is_left_out(Finding("datastream.window", "Minimum.reduce", "its class is not there"))
        assert is_left_out(Finding("datastream", "SinkFunction", "it is not there"))
        assert not is_left_out(Finding("datastream", "ValueState", "it is not there"))


def test_the_table_is_read_up_to_the_next_heading() -> None:
    rows = left_out(
        "## Names that are not here\n| `a` | `B`, `*.c` | why not |\n## More\n| `d` | `E` | why |\n"
    )
    assert rows == [Row("a", "B", "why not"), Row("a", "*.c", "why not")]
    assert [rows[1].covers(Finding("a", f"Any.{name}")) for name in "cd"] == [True, False]


#: What users of an environment find here and not in PyFlink. Streams use its ``jobs``, which is no method.
OWN_METHODS = {
    *("from_batch_reader", "from_dataframe", "from_files", "from_rate", "from_rdd", "from_streaming"),
    *("read_text_file", "restore_from", "add_listener", "add_metric_reporter"),
    *("enable_web_page", "get_web_page_address", "set_journal", "set_progress"),
    *("set_default_job_name", "set_heartbeat", "set_restart_strategy", "set_slot_memory_limit"),
    "set_state_backend",
}


def test_an_environment_has_pyflinks_methods_and_those_for_users_of_spark() -> None:
    reference = REFERENCE["modules"]["pyflink.datastream.stream_execution_environment"]
    pyflinks = set(reference["StreamExecutionEnvironment"]["members"])
    public = {name for name in vars(StreamExecutionEnvironment) if not name.startswith("_")}
    assert StreamExecutionEnvironment.__bases__ == (object,)
    assert public - pyflinks == OWN_METHODS


def test_the_environment_is_loaded_when_it_is_asked_for() -> None:
    assert StreamExecutionEnvironment.__module__ == "pyflinkstate.runtime.program.environment"
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        pyflinkstate.datastream.Nothing  # noqa: B018


@pytest.mark.parametrize(
    "door",
    [
        pyflinkstate.common,
        pyflinkstate.datastream,
        pyflinkstate.datastream.connectors,
        pyflinkstate.datastream.connectors.base,
        pyflinkstate.metrics,
    ],
    ids=lambda door: door.__name__,
)
def test_every_name_of_a_door_is_documented_and_is_a_name_of_the_package(door: object) -> None:
    for name in door.__all__:  # type: ignore[attr-defined]
        assert getattr(door, name).__doc__, name
        assert getattr(pyflinkstate, name) is getattr(door, name), name
