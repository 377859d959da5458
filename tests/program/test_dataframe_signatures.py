"""The options of ``keyed_process`` and ``keyed_map``: each is named once, and documented."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
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
    ("call", "message"),
    [
        *(
            (
                lambda option=option: keyed_process(None, **NEEDED, **{option: 1}),
                rf"^keyed_process\(\) has no option '{option}'; {hint}",
            )
            for option, hint in [
                ("paralelism", r"did you mean 'parallelism'\?"),
                ("side_output", r"did you mean 'side_outputs'\?"),
                ("allowed_latenes", r"did you mean 'allowed_lateness'\?"),
                ("zzz", "the options are key, function, schema, "),
            ]
        ),
        *(
            (
                lambda option=option: keyed_map(None, "user", None, "n long", **{option: 1}),
                rf"^keyed_map\(\) has no option '{option}'; {hint}",
            )
            for option, hint in [
                ("job_nam", r"did you mean 'job_name'\?"),
                ("state_typ", r"did you mean 'state_type'\?"),
                ("window", ""),
            ]
        ),
        (lambda: keyed_process(None, function=None), r"^keyed_process\(\) needs key=, schema=$"),
    ],
)
def test_an_unknown_or_missing_option_is_named_with_the_nearest_one(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        call()
