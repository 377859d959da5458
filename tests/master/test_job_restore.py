"""Jobs that are restored: what fits, what slots get, initial rows, and what sources keep between two runs."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from pathlib import Path
from typing import Any

import attrs
import pytest
from event_time_functions import Third
from operators import running_sums
from slot_functions import Echo, Reminded, SeededSums
from support_job import JobRun, counts, latest, numbers, once, restore_point
from support_runtime import PICKLED, ManualClock, handle, metadata
from test_job import RARELY, Table

from pyflinkstate import SplitEpoch, TypeInformation, Types, WatermarkStrategy
from pyflinkstate.api import NO_WATERMARK
from pyflinkstate.backends.format import (
    RAW_KEYED_STATE,
    ByteStreamStateHandle,
    CheckpointMetadata,
    KeyGroupsStateHandle,
    OperatorState,
    OperatorSubtaskState,
    Section,
)
from pyflinkstate.backends.format.metadata import FIRST_KEY_HASH
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.keys import key_group_range
from pyflinkstate.errors import (
    BadRecordError,
    ConfigurationError,
    IncompatibleCheckpointError,
    ParallelismError,
    SparkJobError,
)
from pyflinkstate.runtime.master import Deployments, RestorePoint, fit
from pyflinkstate.runtime.plan import (
    WATERMARKS,
    ChainNode,
    Input,
    JobPlan,
    Node,
    SettledOperator,
    SourceNode,
    StatefulNode,
    UnionNode,
)
from pyflinkstate.runtime.plan.nodes import Assigner
from pyflinkstate.runtime.settings import CheckpointSettings
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sources import CollectionSource, DirectorySource, InitialRows
from pyflinkstate.runtime.sources.formats import JsonFormat
from pyflinkstate.runtime.storage import CheckpointFolders
from pyflinkstate.runtime.wire import SlotId

pytestmark = pytest.mark.timeout(60)


def stopped(storage: CheckpointFolders, epoch: int, **settings: Any) -> tuple[JobRun, list[Any], str]:
    """Run a job that ends in ``epoch``; returns it, its output and its id."""
    run = JobRun(numbers(), storage=storage, **settings)
    run.runner.before = once(BadRecordError("bad input"), epoch)
    run.fails(BadRecordError)
    return run, run.out, run.job_id


def again(run: JobRun, **changes: Any) -> JobRun:
    """Return the job as it is run again, from the newest checkpoint, without the failure."""
    made = attrs.evolve(run, restore=latest(run.storage), **changes)
    made.runner.requests.clear()
    made.runner.before = lambda request: None
    return made


@pytest.mark.parametrize("epoch", [2, 3, 4])
def test_a_restored_job_goes_on_where_its_checkpoint_was_taken(
    storage: CheckpointFolders, epoch: int
) -> None:
    run, out, job_id = stopped(storage, epoch)
    assert out == list(range(3 * (epoch - 1)))
    job = again(run).job()
    assert list(job.run()) == list(range(epoch, 5))
    assert out == list(range(10))
    assert job.job_id == job_id
    assert counts(job) == {"numbers.records_out": 10}
    assert run.runner.requests[0].link.driver.attempt == 0


def test_ids_go_on_also_over_those_that_were_never_completed(storage: CheckpointFolders) -> None:
    run, _, job_id = stopped(storage, 3)
    assert storage.completed(job_id) == [2]
    storage.begin(job_id, 7)  # the process died while it was writing
    job = again(run).run()
    assert [stats.checkpoint_id for stats in job.result().checkpoints] == [8, 9]
    assert storage.completed(job_id) == [9], "those of the run before are subsumed"


def test_a_job_that_had_ended_has_nothing_left_to_do(storage: CheckpointFolders) -> None:
    run = JobRun(numbers(), storage=storage)
    first = run.run()
    second = again(run).run()
    assert run.out == list(range(10))
    assert run.runner.requests == []
    assert second.result().accumulators == first.result().accumulators


def test_a_restored_job_that_fails_restarts_from_what_it_was_restored_from(
    storage: CheckpointFolders,
) -> None:
    run, out, _ = stopped(storage, 3)
    restored = again(run, restart=FixedDelayRestart(1, 0))
    restored.runner.after = once(SparkJobError("lost"), 3)
    restored.run()
    assert out == list(range(10))
    assert [request.link.epoch for request in restored.runner.requests] == [3, 3, 4]


def test_input_that_does_not_fit_the_position_is_refused(storage: CheckpointFolders) -> None:
    run, _, _ = stopped(storage, 3)
    again(run, end=numbers(11)).fails(IncompatibleCheckpointError, match="does not fit this collection")


# --- what does not fit ---------------------------------------------------------------------------------


def restored_from(storage: CheckpointFolders, **changes: Any) -> RestorePoint:
    """A checkpoint that only has metadata."""
    made = metadata(source_position={"index": 3, "length": 10}, **changes)
    return RestorePoint(made, storage.begin(made.job_id, made.checkpoint_id))


def state(operator_id: str = "process-1", max_parallelism: int = 128, parallelism: int = 2) -> OperatorState:
    some = OperatorSubtaskState(handle(0, max_parallelism - 1))
    return OperatorState(operator_id, parallelism, max_parallelism, (some,))


def test_an_operator_without_state_may_be_gone(storage: CheckpointFolders) -> None:
    empty = OperatorState("gone", 2, 128, (OperatorSubtaskState(),) * 2)
    assert empty.is_empty
    assert not state().is_empty
    assert keyed_run(storage, empty).job_id


def keyed(**settings: Any) -> StatefulNode:
    return StatefulNode(numbers(), lambda n: n, PICKLED, Echo(), "process", **settings)


INCOMPATIBLE = IncompatibleCheckpointError
SET_MAX_PARALLELISM: list[dict[str, Any]] = [{"max_parallelism": 128}, {"end": keyed(max_parallelism=128)}]


def keyed_run(storage: CheckpointFolders, operator: OperatorState, **settings: Any) -> JobRun:
    restore = restored_from(storage, operators=[operator])
    return JobRun(settings.pop("end", keyed()), storage=storage, restore=restore, **settings)


@pytest.mark.parametrize(
    ("operator", "settings", "error", "text"),
    [
        (state(), {"name": "invoices"}, INCOMPATIBLE, "belongs to job 'orders', not to 'invoices'"),
        *(
            (state("spend"), {"end": end}, INCOMPATIBLE, r"state of operator 'spend'[\s\S]*set uid\(\)")
            for end in (keyed(), numbers(), keyed(uid="other"))
        ),
        *(
            (
                state(max_parallelism=256),
                setting,
                INCOMPATIBLE,
                "max parallelism 256, and the program sets 128",
            )
            for setting in SET_MAX_PARALLELISM
        ),
        (state(max_parallelism=8), {"parallelism": 9}, ParallelismError, "not within bounds: 9"),
    ],
)
def test_what_does_not_fit_is_refused(
    storage: CheckpointFolders,
    operator: OperatorState,
    settings: dict[str, Any],
    error: type[Exception],
    text: str,
) -> None:
    with pytest.raises(error, match=text):
        keyed_run(storage, operator, **settings).job()


@pytest.mark.parametrize("settings", SET_MAX_PARALLELISM)
def test_a_max_parallelism_that_was_set_may_be_that_of_the_checkpoint(
    storage: CheckpointFolders, settings: dict[str, Any]
) -> None:
    assert keyed_run(storage, state(max_parallelism=128), **settings).job_id


def test_a_max_parallelism_that_was_not_set_is_taken_over(storage: CheckpointFolders) -> None:
    run = keyed_run(storage, state(max_parallelism=7), parallelism=3)
    run.runner.starts = lambda request: None  # there is no state to be read
    run.runner.before = once(BadRecordError("enough seen"), 2)
    run.fails(BadRecordError)
    (operator,) = run.runner.requests[0].plan.operators
    assert (operator.parallelism, operator.max_parallelism) == (3, 7)


def test_an_operator_that_the_checkpoint_does_not_know_begins_empty(storage: CheckpointFolders) -> None:
    run = JobRun(keyed(), storage=storage, restore=restored_from(storage))
    run.runner.before = once(BadRecordError("enough seen"), 2)
    run.fails(BadRecordError)
    assert run.runner.requests[0].plan.operators[0].max_parallelism == 128


def test_a_function_that_cannot_be_pickled_is_refused_at_once(storage: CheckpointFolders) -> None:
    function = Echo()
    function.connection = (n for n in [])  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match=r"operator 'process': its function cannot be pickled"):
        JobRun(attrs.evolve(keyed(), function=function), storage=storage).job()


def test_handles_are_not_asked_for_before_they_are_needed(storage: CheckpointFolders) -> None:
    halves = (OperatorSubtaskState(handle(0, 63)), OperatorSubtaskState(handle(64, 127)))
    run = keyed_run(storage, attrs.evolve(state(), subtasks=halves))
    run.end = ChainNode(run.end, "map", str, "map")
    assert run.job_id == run.restore.metadata.job_id
    assert run.runner.requests == []


PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


def half_of(subtask: int, name: str) -> KeyGroupsStateHandle:
    """What one of two subtasks wrote in an earlier release."""
    return KeyGroupsStateHandle(
        key_group_range(128, 2, subtask),
        ByteStreamStateHandle(b"x"),
        {name: {64 * subtask: Section(0, 1, 0)}},
        key_hash_version=FIRST_KEY_HASH,
    )


def of_two(*, raw: bool = False) -> CheckpointMetadata:
    subtasks = tuple(
        OperatorSubtaskState(
            half_of(subtask, "count"), raw_keyed=half_of(subtask, RAW_KEYED_STATE) if raw else None
        )
        for subtask in range(2)
    )
    return CheckpointMetadata(1, "0" * 32, "job", 1, None, {}, 0, (OperatorState("sums", 2, 128, subtasks),))


def plan(key_type: TypeInformation) -> JobPlan:
    source = SourceNode(CollectionSource([]), "source")
    node = StatefulNode(source, lambda value: value, key_type, function=print, name="sums")
    return JobPlan(source, (), (SettledOperator("sums", "sums", node, 4, 128, False),))


def assigned(key_type: TypeInformation) -> list[int]:
    """How many files each of four slots reads."""
    deployments = Deployments(plan(key_type), HashMapStateBackend(), None, False, None)
    deployments.begin_attempt(0, 1, RestorePoint(of_two(), "uri"))
    return [len(deployments.of(SlotId("sums", subtask)).state.managed_keyed) for subtask in range(4)]


def test_each_slot_reads_all_state_whose_keys_lie_elsewhere_now() -> None:
    assert assigned(PAIR) == [2, 2, 2, 2]
    assert assigned(Types.STRING()) == [1, 1, 1, 1]


def test_raw_keyed_state_that_would_have_to_be_spread_anew_is_refused() -> None:
    with pytest.raises(IncompatibleCheckpointError, match=r"'sums' has raw keyed state, and keys of TUPLE"):
        fit(plan(PAIR), "job", of_two(raw=True), False)


@pytest.mark.parametrize(("raw", "key_type"), [(False, PAIR), (True, Types.STRING())], ids=str)
def test_all_other_state_fits(raw: bool, key_type: TypeInformation) -> None:
    program = plan(key_type)
    assert fit(program, "job", of_two(raw=raw), False).operators == program.operators


KEY = itemgetter(0)
INITIAL = [(f"key-{n % 5}", 1000 + n) for n in range(20)]
#: ``key-0`` to ``key-2`` occur before, and ``other`` does not.
RECORDS = [(["key-0", "key-1", "key-2", "other"][n % 4], n) for n in range(24)]
LOST = SparkJobError("an executor was lost")


class Initial:
    """Initial rows that count how often they are read."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows
        self.reads = 0

    def __call__(self) -> SplitEpoch:
        self.reads += 1
        return SplitEpoch([self.rows[::2], self.rows[1::2]], lambda split, _: split)


@pytest.fixture
def initial() -> Initial:
    return Initial(INITIAL)


def seeded(parent: Node, initial: Initial, function: Any) -> StatefulNode:
    rows = Input(SourceNode(InitialRows(initial), "initial state"), select_key=KEY)
    return StatefulNode(parent, KEY, PICKLED, function, "sums", uid="sums", others=(rows,))


def sums_of(initial: Initial, function: Any = None) -> StatefulNode:
    numbers = SourceNode(CollectionSource(RECORDS, 6), "numbers")
    return seeded(numbers, initial, function or SeededSums())


@pytest.fixture
def job_run(initial: Initial, out: list[Any], storage: CheckpointFolders) -> JobRun:
    return JobRun(sums_of(initial), out=out, storage=storage, parallelism=2)


EXPECTED = Counter(running_sums(INITIAL + RECORDS)[len(INITIAL) :])


def test_without_checkpoints(job_run: JobRun, initial: Initial, out: list[Any]) -> None:
    job_run.storage = None
    job = job_run.run()
    assert Counter(out) == EXPECTED
    assert [stats.records for stats in job_run.heard.epochs] == [len(INITIAL), len(RECORDS)]
    assert job.result().accumulators["initial state.records_out"] == len(INITIAL)
    assert initial.reads == 1


def test_the_first_checkpoint_is_of_them_alone(
    job_run: JobRun, initial: Initial, out: list[Any], storage: CheckpointFolders
) -> None:
    job_run.checkpoints = CheckpointSettings(interval_ms=0, num_retained=9)
    job = job_run.run()
    assert Counter(out) == EXPECTED
    first = restore_point(storage, job.job_id, 1)
    assert first.metadata.source_position == {"index": 0, "length": len(RECORDS)}

    out.clear()
    again = JobRun(sums_of(initial), job_run.sink, storage, first, parallelism=3)
    again.run()
    assert Counter(out) == EXPECTED
    assert initial.reads == 1, "the job goes on from a checkpoint"


def test_a_program_that_drops_them_later_goes_on(
    job_run: JobRun, initial: Initial, out: list[Any], storage: CheckpointFolders
) -> None:
    next(iter(job_run.job().run()))
    out.clear()
    numbers = SourceNode(CollectionSource(RECORDS, 6), "numbers")
    plain = StatefulNode(numbers, KEY, PICKLED, SeededSums(), "sums", uid="sums")
    JobRun(plain, job_run.sink, storage, latest(storage), parallelism=2).run()
    assert Counter(out) == EXPECTED


@pytest.mark.parametrize("epoch", [1, 2, 4])
def test_an_epoch_that_fails_at_its_end(
    job_run: JobRun, initial: Initial, out: list[Any], epoch: int
) -> None:
    """A later one than the first waits for a checkpoint; each is of an epoch after the rows were taken."""
    job_run.restart = FixedDelayRestart(1, 0)
    fail = once(LOST, epoch)

    def after(request: Any) -> None:
        if request.link.epoch == epoch and epoch > 1 and not job_run.heard.restarts:
            job_run.heard.await_checkpoint()
        fail(request)

    job_run.runner.after = after
    assert job_run.run().result().restarts == 1
    assert Counter(out) == EXPECTED
    assert initial.reads == (2 if epoch == 1 else 1)


def test_a_slot_that_dies_while_it_takes_them(
    job_run: JobRun, initial: Initial, out: list[Any], tmp_path: Path
) -> None:
    fails_once = tmp_path / "fails once"
    fails_once.touch()
    job_run.end = sums_of(initial, SeededSums(str(fails_once)))
    job_run.restart = FixedDelayRestart(1, 0)
    assert job_run.run().result().restarts == 1
    assert Counter(out) == EXPECTED
    assert initial.reads == 2


@pytest.mark.parametrize("idle_timeout_ms", [None, 1], ids=["busy", "idle"])
def test_nobody_waits_for_their_watermark_and_they_advance_none(
    initial: Initial, storage: CheckpointFolders, idle_timeout_ms: int | None
) -> None:
    initial.rows = [("a", 25), ("b", 5), ("c", 1000)]
    records = [("a", n, 10 * n) for n in range(6)]
    strategy = WatermarkStrategy(0, idle_timeout_ms=idle_timeout_ms).with_timestamp_assigner(Third())
    timed = ChainNode(
        SourceNode(CollectionSource(records, 2), "numbers"),
        WATERMARKS,
        strategy,
        "time",
        assigner=Assigner(1),
    )
    run = JobRun(seeded(timed, initial, Reminded()), storage=storage, clock=ManualClock(step_ms=1))
    assert run.results() == [
        ("a", 0, NO_WATERMARK),
        ("a", 10, NO_WATERMARK),
        ("b", "timer", 5),
        ("a", 20, 9),
        ("a", 30, 9),
        ("a", "timer", 25),
        ("a", 40, 29),
        ("a", 50, 29),
        ("c", "timer", 1000),
    ]


@attrs.define
class Shop:
    """Directories of JSON files with the same names, and what jobs have read of them."""

    path: Path
    storage: CheckpointFolders

    def write(self, directory: str, file: str) -> None:
        (self.path / directory).mkdir(exist_ok=True)
        (self.path / directory / file).write_text(f'"{directory}/{file}"\n')

    def files(self, directory: str, uid: str | None) -> SourceNode:
        return SourceNode(DirectorySource(str(self.path / directory), JsonFormat(), 5), "files", uid=uid)

    def reads(self, *sources: SourceNode, **settings: Any) -> list[str]:
        """Run a job of the sources to its end, and return what it reads."""
        return sorted(JobRun(UnionNode(sources), storage=self.storage, **settings).results())


@pytest.fixture
def shop(tmp_path: Path, storage: CheckpointFolders) -> Shop:
    made = Shop(tmp_path, storage)
    for directory, file in [("orders", "a"), ("orders", "b"), ("refunds", "a"), ("other", "a")]:
        made.write(directory, file)
    return made


def begun(shop: Shop) -> None:
    """Read orders and refunds, of which each then has a file that the other one had before."""
    assert shop.reads(shop.files("orders", "orders"), shop.files("refunds", "refunds")) == [
        "orders/a",
        "orders/b",
        "refunds/a",
    ]
    shop.write("orders", "c")
    shop.write("refunds", "b")


def test_sources_with_uids_may_come_in_another_order(shop: Shop) -> None:
    begun(shop)
    sources = shop.files("refunds", "refunds"), shop.files("orders", "orders")
    assert shop.reads(*sources, restore=latest(shop.storage)) == ["orders/c", "refunds/b"]


def test_a_new_source_is_read_from_its_beginning(shop: Shop) -> None:
    begun(shop)
    sources = [shop.files(name, name) for name in ("other", "orders", "refunds")]
    assert shop.reads(*sources, restore=latest(shop.storage)) == ["orders/c", "other/a", "refunds/b"]
    position = latest(shop.storage).metadata.source_position
    assert set(position) == {"other", "orders", "refunds"}
    assert shop.reads(*sources, restore=latest(shop.storage)) == []


def test_a_source_is_given_up_only_on_demand(shop: Shop) -> None:
    begun(shop)
    kept = shop.storage.completed(latest(shop.storage).metadata.job_id)
    sources = shop.files("other", "other"), shop.files("refunds", "refunds")
    with pytest.raises(IncompatibleCheckpointError, match="positions of the sources 'orders'"):
        shop.reads(*sources, restore=latest(shop.storage))
    found = latest(shop.storage)
    assert shop.storage.completed(found.metadata.job_id) == kept
    assert shop.reads(*sources, restore=found, allow_non_restored_state=True) == ["other/a", "refunds/b"]
    assert set(latest(shop.storage).metadata.source_position) == {"other", "refunds"}


def test_a_checkpoint_of_before_fits_the_program_that_it_was_taken_with(shop: Shop) -> None:
    """Uids had no effect on sources then."""
    shop.reads(shop.files("orders", None), shop.files("refunds", None))
    assert set(latest(shop.storage).metadata.source_position) == {"files-0", "files-1"}
    begun_again = shop.files("orders", "orders"), shop.files("refunds", "refunds")
    shop.write("orders", "c")
    assert shop.reads(*begun_again, restore=latest(shop.storage)) == ["orders/c"]


def test_epochs_that_were_planned_with_fewer_sources_are_cut_as_they_were(storage: CheckpointFolders) -> None:
    rows: dict[int, list[int]] = {}

    def run(*uids: str, **settings: Any) -> JobRun:
        sources = [attrs.evolve(numbers(8, 3), uid=uid) for uid in uids]
        return JobRun(UnionNode(tuple(sources)), Table(rows), storage, checkpoints=RARELY, **settings)

    first = run("a", "b")
    first.runner.after = once(BadRecordError("bad input"), 3)
    first.fails(BadRecordError)
    run("c", "b", "a", restore=latest(storage)).run()
    assert [sorted(rows[number]) for number in sorted(rows)] == [
        [0, 0, 1, 1, 2, 2],
        [3, 3, 4, 4, 5, 5],
        [6, 6, 7, 7],
        [0, 1, 2],
        [3, 4, 5],
        [6, 7],
    ]
