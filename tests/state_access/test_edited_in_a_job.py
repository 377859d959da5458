"""Each kind of change to a savepoint, restored by a job with real slots: what its functions find."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pyarrow.compute as pc
import pytest
from local_environment import local_environment
from slot_functions import RULES, WINDOW_END_MS, Everything, Ruled

from pyflinkstate.api import TimestampAssigner, Types, ValueStateDescriptor, WatermarkStrategy
from pyflinkstate.state_access import StateBootstrapFunction, edit, new_savepoint
from pyflinkstate.state_access.writing.savepoints import CheckpointEdit

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("forked_slots")]

WRITES = [("a", 1), ("b", 2), ("c", 3)]
PROBES = [("a", 0), ("b", 0), ("c", 0)]
AMOUNTS = dict(WRITES)


class AtZero(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return 0


class Program:
    """The job, with an operator of each kind of state; ``run`` returns what its functions found."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.monkeypatch = monkeypatch
        self.folder = folder

    def run(
        self,
        restore: str | None = None,
        parallelism: int = 1,
        uid: str = "everything",
        ruled: str = "ruled",
        is_incremental: bool = False,
        **settings: Any,
    ) -> tuple[list[Any], list[str]]:
        env = local_environment(self.monkeypatch).set_parallelism(parallelism)
        env.enable_checkpointing(
            0, str(self.folder / "checkpoints"), num_retained=10, incremental=is_incremental
        )
        if restore is not None:
            env.restore_from(restore)
        records = env.from_collection([*WRITES, *PROBES], records_per_epoch=3).uid("records")
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(AtZero())
        keyed = records.assign_timestamps_and_watermarks(strategy).key_by(_key, key_type=Types.STRING())
        rules = env.from_collection([("limit", 7)], records_per_epoch=3).uid("rules").broadcast(RULES)
        found: list[Any] = []
        everything = keyed.process(Everything(**settings)).uid(uid)
        told = everything.union(keyed.connect(rules).process(Ruled()).uid(ruled))
        with told.execute_and_collect("edited") as results:
            found.extend(results)
        job_folder = next(path for path in (self.folder / "checkpoints").iterdir() if path.is_dir())
        return found, [str(path) for path in sorted(job_folder.glob("chk-*"))]


def _key(record: tuple[str, int]) -> str:
    return record[0]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    return Program(monkeypatch, tmp_path)


@attrs.frozen
class Found:
    """What the functions of a job say that they have found, by key."""

    values: dict[str, Any] = attrs.field(factory=lambda: {key: values(n) for key, n in WRITES})
    others: dict[str, Any] = attrs.field(factory=lambda: {key: others(n) for key, n in WRITES})
    timers: dict[str, Any] = attrs.field(factory=lambda: dict.fromkeys(AMOUNTS, (WINDOW_END_MS,)))
    keys: list[str] = attrs.field(factory=lambda: list(AMOUNTS))
    rules: dict[str, int] = attrs.field(factory=lambda: {"limit": 7})


def values(number: int) -> tuple[Any, ...]:
    return number, [number], {"n": number}


def others(number: int) -> tuple[Any, ...]:
    return number, {"n": number}


NO_VALUES, NO_OTHERS = (None, [], {}), (None, None)


def found_in(results: list[Any]) -> Found:
    told = {kind: {key: rest for key, of, *rest in results if of == kind} for kind in KINDS}
    per_key = (
        {key: tuple(rest) for key, rest in told[kind].items()} for kind in ("values", "others", "timer")
    )
    keys = sorted({key for _, kind, *rest in results if kind == "keys" for key in rest[0]})
    return Found(*per_key, keys, told["rules"][""][0])


KINDS = ("values", "others", "timer", "keys", "rules")
ALL = "everything"
Change = Callable[[CheckpointEdit], CheckpointEdit]


def case(change: Change, found: Found, **settings: Any) -> Any:
    return change, found, settings


def base(kind: str, **changed: Any) -> Found:
    """Return what is found if one kind is changed for some keys."""
    return attrs.evolve(Found(), **{kind: {**getattr(Found(), kind), **changed}})


class Rules(StateBootstrapFunction):
    """Makes broadcast state of rows."""

    def initialize_state(self, context: Any) -> None:
        self.rules = context.get_operator_state_store().get_broadcast_state(RULES)

    def process_element(self, value: tuple[str, int], ctx: Any) -> None:
        self.rules.put(*value)


NOTHING_OF_ALL = Found(dict.fromkeys(AMOUNTS, NO_VALUES), dict.fromkeys(AMOUNTS, NO_OTHERS), {}, [])
CASES = {
    "nothing": case(lambda e: e, Found()),
    "more subtasks": case(lambda e: e, Found(), parallelism=3),
    "put a value": case(
        lambda e: e.put(ALL, "total", {"key": ["a", "d"], "value": [10, 4]}),
        base("values", a=(10, [1], {"n": 1})),
    ),
    "put elements of a list": case(
        lambda e: e.put(ALL, "amounts", {"key": ["a", "a"], "position": [0, 1], "value": [8, 9]}),
        base("values", a=(1, [8, 9], {"n": 1})),
    ),
    "put an entry of a map": case(
        lambda e: e.put(ALL, "by name", {"key": ["a"], "map_key": ["m"], "value": [9]}),
        base("values", a=(1, [1], {"n": 1, "m": 9})),
    ),
    "put a value with time to live": case(
        lambda e: e.put(ALL, "visited", {"key": ["a"], "value": [9]}), base("others", a=(9, {"n": 1}))
    ),
    "put a pickled value": case(
        lambda e: e.put(ALL, "untyped", {"key": ["a"], "value": [pickle.dumps([9])]}),
        base("others", a=(1, [9])),
    ),
    "delete a key": case(
        lambda e: e.delete(ALL, ["a"]),
        attrs.evolve(
            base("values", a=NO_VALUES),
            others=base("others", a=NO_OTHERS).others,
            timers=dict.fromkeys("bc", (WINDOW_END_MS,)),
        ),
    ),
    "delete where": case(
        lambda e: e.delete_where(ALL, "total", pc.field("value") < 2),
        base("values", a=(None, [1], {"n": 1})),
    ),
    "delete where by a function": case(
        lambda e: e.delete_where(ALL, "by name", lambda row: row["value"] == 1),
        base("values", a=(1, [1], {})),
    ),
    "convert by a function": case(
        lambda e: e.migrate(ALL, "total", ValueStateDescriptor("total", Types.STRING()), str),
        base("values", **{key: (str(n), [n], {"n": n}) for key, n in WRITES}),
        total=Types.STRING(),
    ),
    "convert to a wider type": case(
        lambda e: e.migrate(ALL, "total", ValueStateDescriptor("total", Types.BIG_INT())),
        base("values", **{key: (n, [n], {"n": n}) for key, n in WRITES}),
        total=Types.BIG_INT(),
    ),
    "rename a state": case(
        lambda e: e.migrate(ALL, "total", ValueStateDescriptor("sum", Types.LONG())), Found(), name="sum"
    ),
    "drop a state": case(
        lambda e: e.drop_state(ALL, "total"),
        base("values", **{key: (None, [n], {"n": n}) for key, n in WRITES}),
    ),
    "drop operator state": case(lambda e: e.drop_state(ALL, "keys"), attrs.evolve(Found(), keys=[])),
    "drop broadcast state": case(lambda e: e.drop_state("ruled", "rules"), attrs.evolve(Found(), rules={})),
    "rename an operator": case(lambda e: e.rename_uid(ALL, "other"), Found(), uid="other"),
    "rename an operator with broadcast state": case(
        lambda e: e.rename_uid("ruled", "other"), Found(), ruled="other"
    ),
    "drop an operator": case(lambda e: e.drop(ALL), NOTHING_OF_ALL),
    "other key groups": case(lambda e: e.set_max_parallelism(ALL, 16), Found(), parallelism=3),
    "seed from columns": case(
        lambda e: e.drop(ALL).bootstrap(
            ALL,
            [{"key": key, "n": 10 * n} for key, n in WRITES],
            key="key",
            function={ValueStateDescriptor("total", Types.LONG()): "n"},
            key_type=Types.STRING(),
        ),
        attrs.evolve(NOTHING_OF_ALL, values={key: (10 * n, [], {}) for key, n in WRITES}),
        parallelism=2,
    ),
    "bootstrap by the program's function": case(
        lambda e: e.drop(ALL).bootstrap(
            ALL, WRITES, key=_key, function=Everything(), key_type=Types.STRING()
        ),
        Found(),
        parallelism=2,
    ),
    "bootstrap broadcast state": case(
        lambda e: e.drop("ruled").bootstrap("ruled", [("limit", 8)], key=None, function=Rules()),
        attrs.evolve(Found(), rules={"limit": 8}),
        parallelism=2,
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("incremental", [False, True], ids=["full", "incremental"])
@pytest.mark.parametrize("name", CASES)
def test_a_job_finds_what_was_changed(program: Program, name: str, incremental: bool) -> None:
    change, expected, settings = CASES[name]
    first, checkpoints = program.run(is_incremental=incremental, parallelism=1 + incremental)
    assert found_in(first) == Found()
    written = change(edit(checkpoints[0], allow_pickle=True)).write(program.folder / "savepoint")
    again, _ = program.run(restore=written.uri, **settings)
    assert found_in(again) == expected


@pytest.mark.full
def test_an_edited_savepoint_is_edited_again(program: Program) -> None:
    _, checkpoints = program.run(parallelism=2)
    first = edit(checkpoints[0]).put(ALL, "total", {"key": ["a"], "value": [10]}).set_max_parallelism(ALL, 8)
    second = edit(first.write(program.folder / "first")).rename_uid(ALL, "other").delete("other", ["b"])
    again, _ = program.run(restore=second.write(program.folder / "second").uri, uid="other", parallelism=3)
    expected = base("values", a=(10, [1], {"n": 1}), b=NO_VALUES)
    others_left = base("others", b=NO_OTHERS).others
    timers = dict.fromkeys("ac", (WINDOW_END_MS,))
    assert found_in(again) == attrs.evolve(expected, others=others_left, timers=timers)


@pytest.mark.full
def test_a_job_starts_from_a_savepoint_that_was_made_of_rows(program: Program) -> None:
    seeded = new_savepoint("edited").bootstrap(
        ALL,
        [("d", 4)],
        key=_key,
        function=Everything(),
        key_type=Types.STRING(),
    )
    seeded.bootstrap("ruled", [("seeded", 8)], key=None, function=Rules())
    found = found_in(program.run(restore=seeded.write(program.folder / "savepoint").uri, parallelism=2)[0])
    assert found.rules == {"limit": 7, "seeded": 8}
    assert found.keys == ["a", "b", "c", "d"]
    assert found.timers == dict.fromkeys("abcd", (WINDOW_END_MS,))
