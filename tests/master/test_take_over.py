"""A run takes a job over: nothing is touched before all slots have restored, and older drivers end."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import attrs
import pytest
from pyarrow import fs
from slot_functions import Count
from support_job import (
    GrowingSource,
    Heard,
    JobRun,
    LocalRunner,
    PacedSource,
    latest,
    numbers,
    once,
    restore_point,
)
from support_runtime import PATIENCE_S, PICKLED, ManualClock, metadata
from tiers import cases

from pyflinkstate import (
    ExternalizedCheckpointRetention,
    FileSink,
    FileSystemCheckpointStorage,
    JobStatus,
    RunHistory,
    RuntimeContext,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.format import CheckpointMetadata
from pyflinkstate.errors import (
    BadRecordError,
    CheckpointNotFoundError,
    CheckpointStorageError,
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    JobSupersededError,
    SparkJobError,
    StateMigrationError,
)
from pyflinkstate.runtime.engine import EpochRequest
from pyflinkstate.runtime.master import Job, RestorePoint, SavepointRequest, actions as actions_module
from pyflinkstate.runtime.master.checkpoint_files import CHECK_INTERVAL_MS, RunClaim
from pyflinkstate.runtime.master.epochs import Epoch
from pyflinkstate.runtime.plan import ChainNode, SourceNode, StatefulNode
from pyflinkstate.runtime.settings import CheckpointSettings
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sources import CollectionSource
from pyflinkstate.runtime.storage import CheckpointFolders, TakenOver, checkpoints as storage_module

pytestmark = pytest.mark.timeout(60)

JOB = "0" * 32
LOST = SparkJobError("an executor was lost")
KEEP_ALL = CheckpointSettings(interval_ms=0, num_retained=100)


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointFolders:
    """Storage that puts all state into files."""
    return CheckpointFolders(FileSystemCheckpointStorage(str(tmp_path / "checkpoints"), 0))


class OtherType(Count):
    """Has declared another type for the same state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.STRING()))


@attrs.frozen
class OnlyAt(CollectionSource):
    """A source that can be restored at one place, like a streaming query that has gone on."""

    place: int = 0

    def check_restored(self, position: Any) -> None:
        if position["index"] != self.place:
            raise IncompatibleCheckpointError(f"this is at {position['index']}")


@attrs.define
class Shop:
    """Eighty records in epochs of ten, counted and written to files; a checkpoint after each epoch."""

    storage: CheckpointFolders
    directory: Path
    settings: CheckpointSettings = KEEP_ALL

    def run(self, function: Count | None = None, length: int = 80, **settings: Any) -> JobRun:
        made = JobRun(
            numbers(), FileSink(str(self.directory)), self.storage, runner=LocalRunner(), **settings
        )
        made.heard = Heard()
        made.checkpoints = self.settings
        source = PacedSource(CollectionSource(list(range(length)), 10), made.settled)
        made.end = StatefulNode(
            SourceNode(source, "numbers"), lambda n: n % 7, PICKLED, function or Count(), "count", uid="count"
        )
        return made

    def first(self) -> str:
        """Run to the end; returns the job's id."""
        return self.run().run().job_id

    def rows(self) -> list[Any]:
        files = sorted(self.directory.glob("epoch=*/part-*"))
        return sorted(json.loads(line) for file in files for line in file.read_text().splitlines())

    def tree(self) -> dict[str, bytes]:
        """All files of checkpoints and output, but for claims and the owner's mark."""
        roots = [Path(self.storage.uri), self.directory]
        files = [path for root in roots for path in root.rglob("*") if path.is_file()]
        return {str(path): path.read_bytes() for path in files if "/runs/" not in str(path)}


EXPECTED = sorted([key, number + 1] for key in range(7) for number in range(len(range(key, 80, 7))))


@pytest.fixture(params=cases([False, True], quick=[True]), ids=["full", "incremental"])
def shop(storage: CheckpointFolders, tmp_path: Path, request: pytest.FixtureRequest) -> Shop:
    settings = attrs.evolve(KEEP_ALL, incremental=request.param)
    return Shop(storage, tmp_path / "out", settings)


# --- nothing is touched before all slots have restored ------------------------------------------------


@pytest.mark.parametrize("retention", [None, *ExternalizedCheckpointRetention])
def test_a_program_that_does_not_fit_destroys_nothing(
    shop: Shop, retention: ExternalizedCheckpointRetention | None
) -> None:
    """Whatever is to become of checkpoints."""
    job_id = shop.first()
    before = shop.tree()
    assert shop.storage.completed(job_id) == list(range(1, 9))
    assert shop.rows() == EXPECTED
    restore = restore_point(shop.storage, job_id, 2)
    shop.run(OtherType(), restore=restore, restart=FixedDelayRestart(3, 0), retention=retention).fails(
        StateMigrationError
    )
    assert shop.tree() == before
    again = shop.run(restore=latest(shop.storage))
    again.run()
    assert again.runner.requests == [], "nothing was left to do"


@pytest.mark.parametrize("retention", ExternalizedCheckpointRetention)
def test_an_input_that_does_not_fit_destroys_nothing(
    shop: Shop, retention: ExternalizedCheckpointRetention
) -> None:
    job_id = shop.first()
    before = shop.tree()
    restore = restore_point(shop.storage, job_id, 2)
    again = shop.run(length=79, restore=restore, retention=retention, restart=FixedDelayRestart(3, 0))
    again.fails(IncompatibleCheckpointError, match="does not fit this collection")
    assert shop.tree() == before
    assert again.heard.restarts == []
    assert again.runner.started == []


@pytest.mark.parametrize("place", [70, 80])
def test_what_an_older_driver_completed_meanwhile_is_what_must_fit_the_input(shop: Shop, place: int) -> None:
    """It was chosen what to restore, and then the older driver completed one more checkpoint."""
    job_id = shop.first()
    before = shop.tree()
    chosen = attrs.evolve(restore_point(shop.storage, job_id, 7), is_latest=True)
    again = shop.run(restore=chosen)
    source = OnlyAt(list(range(80)), 10, place=place)
    again.end = attrs.evolve(again.end, parent=SourceNode(source, "numbers"))
    with nullcontext() if place == 80 else pytest.raises(IncompatibleCheckpointError, match="this is at 80"):
        again.run()
    assert place == 80 or shop.tree() == before
    assert (again.runner.requests, shop.storage.superseded(job_id)) == ([], [])
    assert shop.rows() == EXPECTED


def test_slots_start_once_and_have_restored_when_the_first_epoch_comes(shop: Shop) -> None:
    job_id = shop.first()
    again = shop.run(restore=restore_point(shop.storage, job_id, 2), parallelism=2)
    again.run()
    (started,) = again.runner.started
    assert [str(slot) for slot in started.slots] == ["count[0]", "count[1]"]
    assert set(again.runner.requests[0].addresses) == set(started.slots)


def test_checkpoints_that_were_set_aside_can_be_gone_back_to(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = shop.first()
    again = shop.run(restore=restore_point(shop.storage, job_id, 2))
    again.runner.before = once(BadRecordError("bad input"), 4)
    again.fails(BadRecordError)
    aside = {shop.storage.load(uri).epoch: uri for uri in shop.storage.superseded(job_id)}
    assert sorted(aside) == list(range(3, 9))
    assert all(uri in caplog.text for uri in aside.values()), "the log says where they are"
    assert shop.storage.completed(job_id) == [1, 2, 9]
    assert latest(shop.storage).metadata.epoch == 3

    back = shop.run(restore=RestorePoint(shop.storage.load(aside[5]), aside[5]))
    back.run()
    assert [request.link.epoch for request in back.runner.requests] == [6, 7, 8]
    assert shop.storage.completed(job_id) == [1, 2, 10, 11, 12], "9 was of the run between, and is set aside"
    assert sum(uri.endswith("-chk-9") for uri in shop.storage.superseded(job_id)) == 1


def test_few_checkpoints_that_were_set_aside_are_kept_and_not_for_ever(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyflinkstate.runtime.storage.checkpoints.MOST_ASIDE", 3)
    job_id = shop.first()
    shop.run(restore=restore_point(shop.storage, job_id, 2)).run()
    kept = {shop.storage.load(uri).epoch: uri for uri in shop.storage.superseded(job_id)}
    assert sorted(kept) == [6, 7, 8], "the newest"
    restore, in_2033 = RestorePoint(shop.storage.load(kept[6]), kept[6]), ManualClock(2 * 10**12)
    shop.run(restore=restore, clock=in_2033).run()
    assert shop.storage.superseded(job_id) == [kept[6]], "the one that the job went back to"


@pytest.mark.parametrize("place", ["same directory", "another directory"])
def test_a_savepoint_that_a_job_went_back_to_is_the_latest_until_its_next_checkpoint(
    shop: Shop, tmp_path: Path, place: str
) -> None:
    """A supervisor starts the program with "latest", however often it dies before its first checkpoint."""
    asked = SavepointRequest(str(tmp_path / "savepoints"), stops_job=True)
    first = shop.run()
    first.job().request_savepoint(asked)
    first.run()
    savepoint = asked.done.result(timeout=0)
    assert shop.storage.load(savepoint).epoch == 1
    if place != "same directory":
        shop.storage = CheckpointFolders(str(tmp_path / "other checkpoints"))
    else:  # later checkpoints of it, and those of a job of the same name that has begun anew
        shop.run(restore=latest(shop.storage)).run()
        clock = ManualClock(first.clock.now_ms() + 10**6)
        attrs.evolve(shop, directory=tmp_path / "anew").run(clock=clock).run()
        assert latest(shop.storage).metadata.job_id != first.job_id
    attrs.evolve(shop, directory=tmp_path / "another").run(name="another", length=10).run()
    later = ManualClock(first.clock.now_ms() + 10**7)

    def dies(point: RestorePoint, epoch: int) -> None:
        run = shop.run(restore=point, clock=later)
        run.runner.before = once(BadRecordError("the driver is killed"), epoch)
        run.fails(BadRecordError)

    dies(RestorePoint(shop.storage.load(savepoint), savepoint), 2)
    for _ in range(2):
        assert latest(shop.storage).uri == savepoint
        dies(latest(shop.storage), 2)
    assert next(uri for _, uri in shop.storage.load_retained("orders")) == savepoint
    dies(latest(shop.storage), 3)
    assert latest(shop.storage).metadata.epoch == 2
    shutil.rmtree(savepoint)
    shop.run(restore=latest(shop.storage), clock=later).run()
    assert shop.rows() == EXPECTED


def test_a_savepoint_is_no_latest_when_later_checkpoints_were_deleted_with_their_job(
    shop: Shop, tmp_path: Path
) -> None:
    asked = SavepointRequest(str(tmp_path), stops_job=True)
    first = shop.run(retention=ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION)
    first.job().request_savepoint(asked)
    first.run()
    savepoint = RestorePoint(shop.storage.load(asked.done.result(timeout=0)), asked.done.result(timeout=0))
    shop.run(restore=savepoint, retention=first.retention).run()
    with pytest.raises(CheckpointNotFoundError, match="start without"):
        latest(shop.storage)


@pytest.mark.parametrize("harm", ["damaged", "gone"])
def test_a_savepoint_that_is_the_latest_and_cannot_be_read(shop: Shop, tmp_path: Path, harm: str) -> None:
    line = RunHistory((("000001-aaaaaaaa", 3),))
    savepoint = tmp_path / "savepoint"
    shop.storage.write_run(JOB, "000001-aaaaaaaa", TakenOver(line, 4, "orders", 9, str(savepoint)))
    if harm == "damaged":
        savepoint.mkdir()
        (savepoint / "_metadata").write_bytes(b"")
        with pytest.raises(CheckpointNotFoundError, match="start without"):
            shop.storage.load_latest("orders", fall_back=True)
    with pytest.raises(
        CorruptCheckpointError if harm == "damaged" else CheckpointNotFoundError, match=str(savepoint)
    ):
        shop.storage.load_latest("orders")
    with pytest.raises(CheckpointNotFoundError, match="start without"):
        shop.storage.load_latest("another")


def test_a_note_that_a_killed_driver_had_begun_is_gone_when_the_job_goes_on(shop: Shop) -> None:
    job_id = shop.first()
    begun = Path(shop.storage.uri, job_id, f".checkpoints.json.inprogress.{'0' * 32}")
    begun.touch()
    shop.run(restore=restore_point(shop.storage, job_id, 2)).run()
    assert not begun.exists()


def test_no_id_of_a_checkpoint_comes_again_when_it_was_set_aside(shop: Shop) -> None:
    job_id = shop.first()
    for epoch in (2, 2):
        run = shop.run(restore=restore_point(shop.storage, job_id, epoch))
        run.runner.before = once(BadRecordError("bad input"), 3)
        run.fails(BadRecordError)
    assert shop.storage.ids_in_use(job_id)[-1] == 8


@pytest.mark.parametrize("is_restored", [False, True])
def test_what_is_set_aside_goes_when_the_job_discards_its_checkpoints(shop: Shop, is_restored: bool) -> None:
    job_id = shop.first()
    restore = restore_point(shop.storage, job_id, 2)
    if is_restored:
        shop.run(restore=restore).run()
        (uri,) = [found for found in shop.storage.superseded(job_id) if shop.storage.load(found).epoch == 5]
        restore = RestorePoint(shop.storage.load(uri), uri)
    shop.run(restore=restore, retention=ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION).run()
    assert shop.storage.superseded(job_id) == []
    assert shop.storage.shared_paths(job_id) == set()


def test_a_checkpoint_of_a_time_without_runs_is_gone_on_from(storage: CheckpointFolders) -> None:
    for number in (1, 2, 3):
        storage.begin(JOB, number)
        position = {"index": 3 * number, "length": 10}
        storage.complete(metadata(number, JOB, epoch=number, source_position=position))
    run = JobRun(numbers(), storage=storage, restore=restore_point(storage, JOB, 2), checkpoints=KEEP_ALL)
    assert run.results() == list(range(6, 10))
    assert storage.completed(JOB) == [1, 2, 4, 5]
    assert [Path(uri).name.rpartition("-")[2] for uri in storage.superseded(JOB)] == ["3"]


# --- moving aside on an object store ---------------------------------------------------------------------


class Torn(Exception):
    """The driver was killed."""


@pytest.mark.parametrize("operations", range(6))
def test_a_move_that_was_interrupted_leaves_the_checkpoint_whole_in_one_place(
    storage: CheckpointFolders, monkeypatch: pytest.MonkeyPatch, operations: int
) -> None:
    """On an object store a rename is copies and deletions."""
    uri = storage.begin(JOB, 5)
    (Path(uri) / "a").write_bytes(b"state")
    (Path(uri) / "b").write_bytes(b"more")
    storage.complete(metadata(5, JOB))
    monkeypatch.setattr(storage_module, "OBJECT_STORES", frozenset({"local"}))
    monkeypatch.setattr(storage, "_fs", fs.LocalFileSystem())
    run = "000002-00000002"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "_fs", Failing(storage._fs, operations))
        with pytest.raises(Torn):
            storage.set_aside(JOB, 5, run)
    places = [uri, *storage.superseded(JOB)]
    whole = [place for place in places if (Path(place) / "_metadata").exists()]
    assert whole
    assert all({path.name for path in Path(place).iterdir()} >= {"a", "b"} for place in whole)
    if 5 in storage.completed(JOB):
        storage.set_aside(JOB, 5, run)
    assert storage.completed(JOB) == []
    (moved,) = storage.superseded(JOB)
    assert storage.load(moved).checkpoint_id == 5


class Failing:
    """A file system that is gone after some changes."""

    def __init__(self, file_system: Any, changes: int) -> None:
        self._file_system = file_system
        self._left = changes

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._file_system, name)
        if name not in {"create_dir", "copy_file", "delete_file", "delete_dir"}:
            return found

        def change(*arguments: Any, **keywords: Any) -> Any:
            if self._left == 0:
                raise Torn
            self._left -= 1
            return found(*arguments, **keywords)

        return change


# --- two drivers -------------------------------------------------------------------------------------------


class Driver:
    """A job on a thread of its own."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            list(self.job.run())
        except BaseException as error:  # noqa: BLE001 - it is the result
            self.error = error

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def newest(storage: CheckpointFolders) -> RestorePoint:
    return attrs.evolve(latest(storage), is_latest=True)


def test_an_idle_driver_ends_when_another_one_has_taken_the_job_over(
    storage: CheckpointFolders, tmp_path: Path
) -> None:
    idle = threading.Event()
    run = JobRun(numbers(), FileSink(str(tmp_path / "out")), storage)
    run.end = SourceNode(GrowingSource(6, lambda _: idle.set()), "numbers")
    run.clock = ManualClock(step_ms=CHECK_INTERVAL_MS)
    older = Driver(run.job())
    assert idle.wait(PATIENCE_S)

    source = GrowingSource(10, lambda source: setattr(source, "is_over", True))
    second = JobRun(SourceNode(source, "numbers"), FileSink(str(tmp_path / "out")), storage)
    second.restore = newest(storage)
    job = second.run()
    older.join()
    assert isinstance(older.error, JobSupersededError)
    claimed = storage.line(job.job_id).runs
    assert older.error.context["newer_run"] == claimed[-1][0]
    for text in ("'orders'", *(run for run, _ in claimed)):
        assert text in str(older.error)
    assert not older.error.recoverable
    files = (tmp_path / "out").glob("epoch=*/part-*")
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert sorted(map(int, lines)) == list(range(10))
    assert latest(storage).metadata.runs == claimed


def test_a_driver_that_was_frozen_before_it_publishes_publishes_commits_and_deletes_nothing(
    shop: Shop,
) -> None:
    """It is thawed when the other one has ended; in between nobody could tell it from a dead one."""
    froze, thaw = threading.Event(), threading.Event()
    first = shop.run(retention=ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS)
    first.runner.after = freeze_at(5, froze, thaw)
    older = Driver(first.job())
    assert froze.wait(PATIENCE_S)
    second = shop.run(restore=newest(shop.storage))
    job_id = second.run().job_id
    after = shop.tree()
    thaw.set()
    older.join()
    assert isinstance(older.error, JobSupersededError)
    assert first.heard.ended == [JobStatus.FAILED]
    assert shop.tree() == after
    assert shop.rows() == EXPECTED
    assert job_id == older.job.job_id


def freeze_at(epoch: int, froze: threading.Event, thaw: threading.Event) -> Callable[[EpochRequest], None]:
    def freeze(request: EpochRequest) -> None:
        if request.link.epoch == epoch:
            froze.set()
            assert thaw.wait(PATIENCE_S)

    return freeze


def write_state(storage: CheckpointFolders, folder: str, shared_by: int | None, writer: str) -> Path:
    """Write a state file as a subtask does it; return its path."""
    stream = storage.streams(folder, shared_by, writer).create()
    stream.write(b"state")
    handle: Any = stream.close_and_get_handle()
    return Path(folder, handle.path).resolve()


@pytest.mark.parametrize("retention", [None, ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS])
def test_a_driver_deletes_at_last_what_its_subtasks_wrote_after_another_one_had_ended(
    shop: Shop, retention: ExternalizedCheckpointRetention | None
) -> None:
    job_id, storage = shop.first(), shop.storage
    older = shop.run(restore=newest(storage), retention=retention).job()
    takeover = older._actions.takeover
    takeover.claim()
    takeover.take_over()
    takeover.begin_attempt()
    newer = shop.run(restore=newest(storage)).job()
    list(newer.run())
    theirs = write_state(storage, storage.begin(job_id, 77, shared=True), 77, "bbbbbbbb")
    before = shop.tree()

    request = SavepointRequest(str(shop.directory), False)
    epoch = Epoch(9)
    assert takeover.checkpoints.trigger_savepoint(request, epoch, 0) == []
    trigger = epoch.trigger
    for made in trigger.all():
        write_state(storage, made.folder, None, made.writer)
    write_state(storage, trigger.folder, trigger.checkpoint_id, trigger.writer)
    assert len(shop.tree()) == len(before) + 3

    older._end_checkpoints(JobStatus.FAILED, True, JobStatus.FAILED)
    assert shop.tree() == before
    assert theirs.exists()
    assert not Path(trigger.savepoint.folder).exists()
    assert storage.checkpoint_ids(job_id) == [*storage.completed(job_id), 77]


def test_a_driver_that_ends_late_leaves_a_folder_that_another_one_uses(shop: Shop) -> None:
    """It made the folder of a checkpoint when the other one had seen which numbers are in use."""
    shop.first()
    older = shop.run(restore=newest(shop.storage)).job()
    takeover = older._actions.takeover
    takeover.claim()
    takeover.take_over()
    newer = claim(shop.storage)
    newer._job_id = older.job_id
    newer.make(RunHistory())
    epoch = Epoch(9)
    takeover.checkpoints.trigger(epoch, 0)
    trigger = epoch.trigger
    theirs = write_state(shop.storage, trigger.folder, None, newer.token)
    write_state(shop.storage, trigger.folder, None, trigger.writer)
    older._end_checkpoints(JobStatus.FAILED, True, JobStatus.FAILED)
    assert list(Path(trigger.folder).iterdir()) == [theirs]


def test_a_driver_does_not_go_back_to_a_checkpoint_that_another_one_has_deleted_with_all_others(
    shop: Shop,
) -> None:
    """It was chosen what to restore, and then another driver came to the end, and its checkpoints went."""
    first = shop.run()
    first.runner.before = once(BadRecordError("bad input"), 6)
    first.fails(BadRecordError)
    chosen = newest(shop.storage)
    shop.run(restore=chosen, retention=ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS).run()
    shop.run(restore=chosen).fails(CheckpointNotFoundError, match=r"checkpoint 5 .* is gone")
    assert shop.rows() == EXPECTED


class Overtaken(CheckpointFolders):
    """An older driver deletes checkpoint 3 after it was listed, and before it is read."""

    def load(self, uri: str) -> CheckpointMetadata:
        if uri.endswith("/chk-3"):
            self.discard(uri)
        return super().load(uri)


def test_a_checkpoint_that_an_older_driver_still_deletes_is_none_to_keep(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    job_id = shop.first()
    shop.storage = Overtaken(shop.storage.settings)
    job = shop.run(restore=restore_point(shop.storage, job_id, 8)).job()
    list(job.run())
    checkpoints = job._actions.checkpoints
    assert checkpoints.coordinator.retained == (1, 2, 4, 5, 6, 7, 8)
    assert "cannot be read" not in caplog.text


def test_to_fall_back_within_a_run_is_another_run(shop: Shop) -> None:
    first = shop.run(fall_back=True, restart=FixedDelayRestart(1, 0))

    def before(request: EpochRequest) -> None:
        if (request.link.driver.attempt, request.link.epoch) == (0, 5):
            for path in damaged_files(shop.storage, first.job_id, 4):
                path.write_bytes(path.read_bytes()[:20])
            raise LOST

    first.runner.before = before
    first.run()
    (claimed,) = shop.storage.runs(first.job_id)
    (begun, after) = shop.storage.line(first.job_id).runs
    assert (begun[1], after) == (0, (claimed, 3))
    assert begun[0] < claimed
    assert shop.rows() == EXPECTED
    assert isinstance(first.heard.restarts[1][1], CorruptCheckpointError)


def damaged_files(storage: CheckpointFolders, job_id: str, checkpoint_id: int) -> list[Path]:
    folder = Path(storage.uri_of(job_id, checkpoint_id))
    own = [path for path in folder.iterdir() if path.name != "_metadata"]
    return own or list((folder.parent / "shared").glob(f"{checkpoint_id}-*"))


# --- the claim ---------------------------------------------------------------------------------------------


def claim(storage: CheckpointFolders, clock: Any = None) -> RunClaim:
    return RunClaim(JOB, "orders", storage, clock or ManualClock())


def test_of_two_claims_the_later_one_holds(storage: CheckpointFolders) -> None:
    older, newer = claim(storage), claim(storage)
    older.make(RunHistory())
    older.check()
    newer.make(RunHistory())
    newer.check()
    with pytest.raises(JobSupersededError):
        older.check()


def test_of_two_claims_at_once_just_one_holds(storage: CheckpointFolders) -> None:
    """Both have seen no run, and so they have the same number."""
    seen: list[str] = []
    for digits in ("aaaaaaaa", "bbbbbbbb"):
        storage.write_run(JOB, f"000001-{digits}")
        seen.append(f"000001-{digits}")
    claims = [claim(storage), claim(storage)]
    for made, run in zip(claims, seen, strict=True):
        made.run = run
    claims[1].check()
    with pytest.raises(JobSupersededError, match="000001-bbbbbbbb"):
        claims[0].check()


def test_a_claim_that_a_newer_run_deleted_while_it_was_written_does_not_hold(
    storage: CheckpointFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver must end; if it claimed the job anew, it would take it from the newer run."""
    older, newer = claim(storage), claim(storage)

    def written_too_late(*_: object) -> None:
        monkeypatch.undo()
        newer.make(RunHistory((("000007-aaaaaaaa", 0),)))
        raise CheckpointStorageError("no such file")

    monkeypatch.setattr(storage, "write_run", written_too_late)
    with pytest.raises(JobSupersededError, match="000008-"):
        older.make(RunHistory())


def test_a_claim_is_newer_than_the_runs_that_led_to_the_restored_checkpoint(
    storage: CheckpointFolders,
) -> None:
    past = RunHistory((("000007-aaaaaaaa", 0),))
    assert claim(storage).make(past).startswith("000008-")


def test_now_and_then_is_not_each_time(storage: CheckpointFolders) -> None:
    clock = ManualClock()
    older = claim(storage, clock)
    older.make(RunHistory())
    claim(storage).make(RunHistory())
    older.check_now_and_then()
    clock.time_ms += CHECK_INTERVAL_MS
    with pytest.raises(JobSupersededError):
        older.check_now_and_then()


def test_a_storage_that_cannot_tell_is_no_reason_to_end(storage: CheckpointFolders) -> None:
    clock = ManualClock(step_ms=CHECK_INTERVAL_MS)
    made = claim(storage, clock)
    made.make(RunHistory())
    folder = Path(storage.uri, JOB, "runs")
    shutil.move(folder, folder.with_name("elsewhere"))
    folder.write_text("in the way")
    made.check_now_and_then()
    with pytest.raises(CheckpointStorageError):
        made.check()


def test_the_line_is_that_of_the_newest_run_that_has_taken_over(storage: CheckpointFolders) -> None:
    assert storage.line(JOB) == RunHistory()
    line = RunHistory((("000001-aaaaaaaa", 0),))
    storage.write_run(JOB, "000001-aaaaaaaa", TakenOver(line, 4))
    storage.write_run(JOB, "000002-bbbbbbbb")
    folder = Path(storage.uri, JOB, "runs")
    (folder / "000003-cccccccc").write_bytes(b'{"runs": [["000')
    (folder / "notes.txt").write_text("not one of ours")
    assert storage.line(JOB) == line
    assert storage.ids_in_use(JOB) == [4]


def test_claims_of_older_runs_go_when_a_run_takes_over(storage: CheckpointFolders) -> None:
    older, newer = claim(storage), claim(storage)
    older.make(RunHistory())
    run = newer.make(RunHistory())
    assert len(storage.runs(JOB)) == 2
    newer.take_over(RunHistory(((run, 0),)), 7)
    assert storage.runs(JOB) == [run]
    with pytest.raises(JobSupersededError):
        older.check()
    assert claim(storage).make(RunHistory()).startswith("000003-")


def test_an_older_run_that_goes_on_late_leaves_the_newer_claim(storage: CheckpointFolders) -> None:
    """It was frozen in the middle of its take-over, and the newer run has deleted its claim meanwhile."""
    older = claim(storage).make(RunHistory())
    newer = claim(storage)
    run = newer.make(RunHistory())
    newer.take_over(RunHistory(((run, 0),)), 7)
    storage.forget_runs(JOB, before=older)
    assert storage.runs(JOB) == [run]
    newer.check()


def test_metadata_with_runs_that_are_none_is_damaged(storage: CheckpointFolders) -> None:
    storage.begin(JOB, 1)
    storage.complete(metadata(1, JOB, runs=(("../../etc", 0),)))
    with pytest.raises(CorruptCheckpointError, match="is not a list of runs"):
        storage.load(storage.uri_of(JOB, 1))


def test_a_chain_of_operators_without_state_needs_no_slots(storage: CheckpointFolders) -> None:
    run = JobRun(ChainNode(numbers(), "map", str, "map"), storage=storage)
    run.runner.before = once(BadRecordError("bad input"), 3)
    run.fails(BadRecordError)
    again = attrs.evolve(run, restore=latest(storage), runner=LocalRunner())
    again.run()
    assert again.runner.started == []


class SlowToOpen(FileSink):
    """A file sink that has taken its directory when its storage goes away for a moment."""

    has_failed = False

    def open_run(self, job_id: str, history: RunHistory, restored_epoch: int | None) -> None:
        super().open_run(job_id, history, restored_epoch)
        if not self.has_failed:
            self.has_failed = True
            raise OSError("try again")


def test_a_job_without_checkpoints_that_begins_again_does_not_refuse_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs that begin at the same time are told apart, and put in order, by random numbers."""
    tokens = itertools.chain(["ffffffff", "00000000"], itertools.repeat("80000000"))
    monkeypatch.setattr(actions_module.secrets, "token_hex", lambda _: next(tokens))
    run = JobRun(numbers(), SlowToOpen(str(tmp_path / "out")), restart=FixedDelayRestart(1, 0))
    assert run.run().result().restarts == 1
    (file,) = tmp_path.glob("out/epoch=*/part-*")
    assert file.read_text().split() == [str(number) for number in range(10)]
