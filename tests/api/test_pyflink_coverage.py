"""Each public name of PyFlink is compared by a program that runs on both, has a row, or has a reason."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from pyflink_coverage import (
    NOT_COMPARED,
    class_names,
    covered,
    covers_of,
    left_out,
    names,
    programs,
    report,
    uncovered,
    unfounded,
    why_not_compared,
)


def test_every_name_is_covered_or_there_is_a_reason() -> None:
    print(f"\n{report()}")
    assert uncovered() == []


@pytest.mark.parametrize("program", programs(), ids=lambda program: program.stem)
def test_a_program_covers_names_of_pyflink_and_its_text_has_them(program: Path) -> None:
    covers = covers_of(program)
    assert covers, "it has no COVERS"
    assert covers <= {*names(), *class_names()}
    assert unfounded(program) == []


def test_no_program_covers_what_is_not_here() -> None:
    assert covered().isdisjoint(left_out())


def test_every_pattern_stands_for_a_name_that_no_program_covers() -> None:
    rest = set(names()) - covered()
    patterns = [pattern for group in NOT_COMPARED.values() for pattern in group.split()]
    assert [one for one in patterns if not any(fnmatchcase(name, one) for name in rest)] == []


def test_what_a_program_claims_without_using_it_is_found(tmp_path: Path) -> None:
    program = tmp_path / "claims.py"
    claims = "datastream.state MapState: get\n    put"
    program.write_text(f'COVERS = """\n{claims}\n"""\nstate.get(1)\n')
    assert covers_of(program) == {f"datastream.state.MapState{end}" for end in ("", ".get", ".put")}
    assert unfounded(program) == ["datastream.state.MapState.put"]


def test_a_name_without_a_reason_has_none() -> None:
    assert why_not_compared("datastream.state.MapState.get") is None
    assert "by hand" in str(why_not_compared("datastream.window.ContinuousProcessingTimeTrigger.of"))
