"""The plan: names, ids and parallelisms of all that leads to the sinks."""

from __future__ import annotations

from typing import Any

import pytest
from slot_functions import Echo
from support_runtime import PICKLED

from pyflinkstate.api.types import Types
from pyflinkstate.errors import ConfigurationError, ParallelismError
from pyflinkstate.runtime.plan import ChainNode, KeyedNode, Node, SinkNode, SourceNode, make_plan, upstream
from pyflinkstate.runtime.sinks import DriverSink
from pyflinkstate.runtime.sources import CollectionSource


def source(name: str = "collection") -> SourceNode:
    return SourceNode(CollectionSource([1, 2, 3]), name)


def keyed(parent: Node, name: str = "process", **settings: Any) -> KeyedNode:
    return KeyedNode(parent, str, PICKLED, Echo(), name, **settings)


def sink(parent: Node) -> SinkNode:
    return SinkNode(parent, DriverSink(print), "sink")


def plan(*sinks: SinkNode, parallelism: int = 4, max_parallelism: int | None = None) -> Any:
    return make_plan(list(sinks), parallelism, max_parallelism)


def test_a_job_without_keys_has_no_operators_with_state() -> None:
    root = source()
    end = sink(ChainNode(root, "map", str, "map"))
    made = plan(end)
    assert (made.source, made.sinks, made.operators) == (root, (end,), ())


def test_operators_have_ids_of_name_and_number() -> None:
    first = keyed(source())
    second = keyed(ChainNode(first, "map", str, "map"))
    made = plan(sink(keyed(second, "totals")))
    assert [operator.operator_id for operator in made.operators] == ["process-1", "process-2", "totals-3"]
    assert [operator.name for operator in made.operators] == ["process", "process", "totals"]
    assert made.operator_of(second) is made.operators[1]


def test_a_uid_is_the_id() -> None:
    made = plan(sink(keyed(keyed(source(), uid="spend"), "other")))
    assert [operator.operator_id for operator in made.operators] == ["spend", "other-2"]


def test_nodes_that_several_sinks_hang_on_are_planned_once() -> None:
    shared = keyed(ChainNode(source(), "map", str, "map"))
    sinks = [sink(shared), sink(keyed(shared, "second")), sink(ChainNode(shared, "map", str, "map"))]
    made = plan(*sinks)
    assert made.sinks == tuple(sinks)
    assert [operator.operator_id for operator in made.operators] == ["process-1", "second-2"]


@pytest.mark.parametrize("uids", [("spend", "spend"), ("second-2", None)], ids=["two uids", "uid and id"])
def test_two_operators_of_one_id_are_refused(uids: tuple[str | None, str | None]) -> None:
    first = keyed(source(), "first", uid=uids[0])
    with pytest.raises(ConfigurationError, match=f"two operators have the same uid: {uids[0]}"):
        plan(sink(keyed(first, "second", uid=uids[1])))


def test_a_job_without_a_sink_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="the job has no sink"):
        plan()


def test_a_job_of_two_sources_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has 2: 'left', 'right'"):
        plan(sink(source("left")), sink(source("right")))


# --- parallelism ---------------------------------------------------------------------------------------


def test_what_an_operator_leaves_open_comes_from_the_environment() -> None:
    own = keyed(source(), parallelism=7, max_parallelism=60)
    made = plan(sink(keyed(own)), parallelism=3, max_parallelism=90)
    assert [(op.parallelism, op.max_parallelism) for op in made.operators] == [(7, 60), (3, 90)]
    assert [op.max_parallelism_is_set for op in made.operators] == [True, True]


@pytest.mark.parametrize(("parallelism", "expected"), [(1, 128), (85, 128), (86, 256), (20_000, 32_768)])
def test_the_default_max_parallelism_is_flinks(parallelism: int, expected: int) -> None:
    (operator,) = plan(sink(keyed(source())), parallelism=parallelism).operators
    assert (operator.max_parallelism, operator.max_parallelism_is_set) == (expected, False)


@pytest.mark.parametrize(
    ("settings", "parallelism", "max_parallelism"),
    [
        ({"parallelism": 129, "max_parallelism": 128}, 1, None),
        ({"parallelism": 5}, 1, 4),
        ({"max_parallelism": 2}, 3, None),
        ({}, 9, 8),
        ({}, 40_000, None),
        ({"max_parallelism": 40_000}, 1, None),
    ],
)
def test_a_parallelism_above_the_max_parallelism_is_refused(
    settings: dict[str, int], parallelism: int, max_parallelism: int | None
) -> None:
    with pytest.raises(ParallelismError, match="bounds"):
        plan(sink(keyed(source(), **settings)), parallelism=parallelism, max_parallelism=max_parallelism)


def test_one_subtask_for_each_key_group_is_the_most() -> None:
    (operator,) = plan(sink(keyed(source())), parallelism=8, max_parallelism=8).operators
    assert (operator.parallelism, operator.max_parallelism) == (8, 8)


# --- chains --------------------------------------------------------------------------------------------


def test_a_chain_reaches_back_to_the_stage_that_it_runs_behind() -> None:
    root = source()
    stage = keyed(ChainNode(root, "map", str, "before"))
    end = ChainNode(ChainNode(stage, "map", str, "first"), "filter", bool, "second")
    assert [operator.name for operator in upstream(end)[1]] == ["first", "second"]
    assert upstream(end)[0] is stage
    assert upstream(stage) == (stage, ())
    assert upstream(stage.parent)[0] is root
    assert upstream(root) == (root, ())


def test_a_declared_output_type_is_checked_right_behind_its_operator() -> None:
    stage = keyed(source(), "count", output_type=Types.LONG())
    end = ChainNode(ChainNode(stage, "map", str, "first", Types.STRING()), "filter", bool, "second")
    assert [operator.name for operator in upstream(end)[1]] == [
        "count output",
        "first",
        "first output",
        "second",
    ]
