"""The options of ``keyed_process`` and ``keyed_map``: each is named once, and documented."""

from __future__ import annotations

import inspect
import re
from typing import Any

import attrs
import pytest

from pyflinkstate import KeyedStep, keyed_map, keyed_process
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.program.dataframes.options import JobKeywords, ProcessKeywords, StepKeywords

NEEDED: dict[str, Any] = {"key": "user", "function": None, "schema": "n long"}


def test_the_options_of_the_first_step_are_the_fields_of_a_step() -> None:
    fields = {field.name: field.type for field in attrs.fields(KeyedStep) if field.name != "uid"}
    told = {name: one.__forward_arg__ for name, one in StepKeywords.__annotations__.items()}
    assert told == fields
    assert StepKeywords.__required_keys__ == {
        field.name for field in attrs.fields(KeyedStep) if field.default is attrs.NOTHING
    }


@pytest.mark.parametrize(
    ("function", "options"), [(keyed_process, ProcessKeywords), (keyed_map, JobKeywords)]
)
def test_every_option_is_documented(function: Any, options: Any) -> None:
    told = inspect.getdoc(function) or ""
    names = {*inspect.signature(function).parameters, *options.__annotations__} - {"options"}
    assert [name for name in names if not re.search(rf"^    {name}: |``{name}``", told, re.MULTILINE)] == []


@pytest.mark.parametrize(
    ("misspelled", "hint"),
    [
        ("paralelism", "did you mean 'parallelism'?"),
        ("side_output", "did you mean 'side_outputs'?"),
        ("allowed_latenes", "did you mean 'allowed_lateness'?"),
        ("zzz", "the options are key, function, schema, "),
    ],
)
def test_an_option_that_keyed_process_has_not_is_refused_with_the_nearest_one(
    misspelled: str, hint: str
) -> None:
    with pytest.raises(
        ConfigurationError, match=f"^keyed_process.. has no option '{misspelled}'; "
    ) as raised:
        keyed_process(None, **NEEDED, **{misspelled: 1})
    assert hint in str(raised.value)


@pytest.mark.parametrize(
    ("misspelled", "hint"),
    [
        ("job_nam", "did you mean 'job_name'?"),
        ("state_typ", "did you mean 'state_type'?"),
        ("window", ""),
    ],
)
def test_an_option_that_keyed_map_has_not_is_refused_with_the_nearest_one(misspelled: str, hint: str) -> None:
    options: dict[str, Any] = {misspelled: 1}
    with pytest.raises(ConfigurationError, match=f"^keyed_map.. has no option '{misspelled}'") as raised:
        keyed_map(None, "user", None, "n long", **options)  # type: ignore[arg-type]
    assert hint in str(raised.value)


def test_what_must_be_given_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"^keyed_process\(\) needs key=, schema=$"):
        keyed_process(None, function=None)  # type: ignore[call-overload]
