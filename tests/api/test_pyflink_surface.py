"""PyFlink's public names are here, but for those that are left out on purpose."""

import json
from pathlib import Path

import pytest
from left_out import LEFT_OUT
from pyflink_surface import NAMES, Finding, counts, findings, is_left_out, misfit, report

import pyflinkstate.datastream
from pyflinkstate.datastream import StreamExecutionEnvironment
from pyflinkstate.datastream.state import ValueState

REFERENCE = Path(__file__).parents[2].parent / "shared" / "reference" / "pyflink_api.json"

#: The modules that are about keyed streams and state.
KEYED = [
    "common.time",
    "common.typeinfo",
    "common.watermark_strategy",
    "datastream.data_stream",
    "datastream.functions",
    "datastream.output_tag",
    "datastream.state",
    "datastream.timerservice",
    "datastream.window",
]


def test_every_name_is_there_or_left_out_on_purpose() -> None:
    print(f"\n{report()}")
    missing = [f"{one.key}: {one.missing}" for one in findings() if one.missing and not is_left_out(one)]
    assert missing == []


def test_nothing_is_left_out_that_is_there() -> None:
    missing = {one.key for one in findings() if one.missing}
    assert [name for name in LEFT_OUT if name not in missing] == []


def test_every_name_left_out_has_its_reason() -> None:
    assert all(len(reason) > 10 for reason in LEFT_OUT.values())


@pytest.mark.parametrize("module", KEYED)
def test_of_each_keyed_module_nine_names_in_ten_are_there(module: str) -> None:
    there, of_all = counts()[module]
    assert there >= 0.9 * of_all


def test_the_names_are_those_of_the_reference() -> None:
    if not REFERENCE.exists():
        pytest.skip("the reference is not on this machine")
    assert json.loads(REFERENCE.read_text()) == NAMES


class TestTheComparison:
    """It must find what is not as it is in PyFlink."""

    def test_a_missing_member(self) -> None:
        assert misfit(ValueState, "no_such_member", []) == "it is not there"

    def test_a_parameter_of_another_name(self) -> None:
        assert misfit(ValueState, "update", ["val"]) == "parameters ['value'], not ['val']"

    def test_a_parameter_that_is_not_there(self) -> None:
        assert misfit(ValueState, "update", ["value", "more"])

    def test_java_objects_are_no_parameters(self) -> None:
        assert misfit(ValueState, "update", ["value", "j_object"]) == ""

    def test_a_class_left_out_stands_for_its_members(self) -> None:
        assert is_left_out(Finding("datastream.window", "Min.reduce", "its class is not there"))
        assert not is_left_out(Finding("datastream.window", "Minimum.reduce", "its class is not there"))


def test_the_environment_is_loaded_when_it_is_asked_for() -> None:
    assert StreamExecutionEnvironment.__module__ == "pyflinkstate.runtime.program.environment"
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        pyflinkstate.datastream.Nothing  # noqa: B018


@pytest.mark.parametrize("name", pyflinkstate.datastream.__all__)
def test_every_name_of_datastream_is_documented(name: str) -> None:
    assert getattr(pyflinkstate.datastream, name).__doc__
