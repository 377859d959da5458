"""Jobs whose processes are killed, frozen and slowed at random, or whose context is stopped at any line.

``make soak`` has more of the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import kill_program
import pytest
import stop_program
from kill_rounds import (
    CONTEXT,
    FREEZE_SLOT,
    FULL_DISK,
    MARK,
    MAX_RUNS,
    SECOND_DRIVER,
    SERVER,
    THAWS,
    KillRound,
    Plan,
)
from killed_connectors import SERVED, TARGETS
from processes import marked

#: A round starts up to four programs, each with a Spark of its own: minutes on a machine that is busy.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

CLUSTER = "local-cluster[2,1,1024]"

#: A driver that is killed costs the start of another Spark.
ROUNDS = {
    "slowed": ("local[2]", Plan(("slot", "worker"), is_slowed=True, injection=(30, 3))),
    "forks": ("local[2]", Plan(("driver",), forks=("driver", "slot"))),
    "savepoint": ("local[2]", Plan(("jvm",), savepoint_after=2)),
    "frozen": ("local[2]", Plan((FREEZE_SLOT, "slot"))),
    "context": ("local[2]", Plan((CONTEXT, CONTEXT))),
    "cluster": (CLUSTER, Plan(("executor", "slot"))),
    "dataframe": ("local[2]", Plan((CONTEXT, "slot"), is_dataframe=True)),
    "pipelined worker": ("local[2]", Plan(("worker", "slot"), is_slowed=True, engine="PIPELINED")),
    "pipelined driver": ("local[2]", Plan(("driver", "slot"), forks=("slot",), engine="PIPELINED")),
    "pipelined frozen": ("local[2]", Plan((FREEZE_SLOT, SECOND_DRIVER), engine="PIPELINED")),
    "pipelined savepoint": ("local[2]", Plan(("jvm",), savepoint_after=2, engine="PIPELINED")),
    "pipelined cluster": (CLUSTER, Plan(("executor", "worker"), engine="PIPELINED")),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_whatever_happens_the_output_is_right_and_nothing_is_left(tmp_path: Path, name: str) -> None:
    master, plan = ROUNDS[name]
    this = KillRound(list(ROUNDS).index(name), tmp_path, master, plan)
    assert not this.run().problems(), this.log
    # A streaming query that was killed may read two files in one batch.
    assert plan.is_dataframe or any("epoch 10" in line for line in this.log)


@pytest.mark.needs_root
@pytest.mark.parametrize("engine", ["STAGES", "PIPELINED"])
def test_a_disk_that_fills_up_is_one_trouble_among_others(tmp_path: Path, engine: str) -> None:
    pytest.importorskip("rocksdict")
    plan = Plan(("slot", FULL_DISK, FULL_DISK), backend="rocksdb", engine=engine)
    this = KillRound(len(engine), tmp_path, plan=plan)
    assert not this.run().problems(), this.log
    assert any("epoch 10" in line for line in this.log)
    assert [line for line in this.log if "full disk" in line]


def test_in_a_fifth_of_the_rounds_with_state_on_disk_a_disk_fills_up() -> None:
    plans = [Plan.drawn(seed).on_disk(seed) for seed in range(50)]
    assert sum(FULL_DISK in plan.troubles for plan in plans) == 10
    assert {(plan.backend, plan.is_dataframe) for plan in plans} == {("rocksdb", False)}


# --- into the targets of connectors ----------------------------------------------------------------

#: Of the two rounds into a target: when the program kills itself that publishes an epoch, and what else
#: happens where there is a server, and where there is none.
INTO = {
    "before": ((SERVER, "slot"), ("slot", CONTEXT)),
    "after": (("jvm", SERVER), ("jvm",)),
}


@pytest.mark.parametrize("moment", INTO)
@pytest.mark.parametrize("target", TARGETS)
def test_a_target_has_each_row_once(tmp_path: Path, target: str, moment: str) -> None:
    troubles = INTO[moment][target not in SERVED]
    plan = Plan(troubles, target=target, kill_publishing=(moment, 3))
    with TARGETS[target].serve() as server:
        this = KillRound(list(INTO).index(moment), tmp_path, plan=plan, server=server)
        assert not this.run().problems(), this.log
    assert any("epoch 10" in line for line in this.log)
    assert ("kill server" in this.log) == (target in SERVED)


@pytest.mark.parametrize("target", TARGETS)
def test_a_server_is_killed_where_there_is_one(target: str) -> None:
    plans = [Plan(("slot", "jvm"), is_dataframe=True).into(target, seed) for seed in range(50)]
    assert {SERVER in plan.troubles for plan in plans} == ({True, False} if target in SERVED else {False})
    assert {plan.kill_publishing is None for plan in plans} == {True, False}
    assert not any(plan.is_dataframe for plan in plans)


# --- two drivers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("thaws", [thaws for thaws in THAWS if "newer" in thaws])
def test_a_driver_that_was_frozen_ends_and_the_output_is_right(tmp_path: Path, thaws: str) -> None:
    this = KillRound(0, tmp_path, plan=Plan((SECOND_DRIVER,), thaws=thaws))
    outcome = this.run()
    assert not outcome.problems(), this.log
    assert any("1 ended with 1" in line and "JobSupersededError" in line for line in this.log), this.log


# --- a stopped context -----------------------------------------------------------------------------

#: A job ends within so many seconds after the stop; the limit is for a machine that is busy.
SOON_S = 30
#: One of so many lines is tried here. Kill rounds stop the context at any moment.
EVERY = 17
#: After the last epoch this is asked once more. Then nothing is left for which Spark is needed.
AT_THE_END = "ask_source"


@pytest.mark.parametrize(
    "cases",
    [["ahead", "epoch"], [str(line) for line in range(0, len(stop_program.LINES), EVERY)]],
    ids=["dropped", "lines"],
)
def test_the_job_ends_with_an_error_and_nothing_is_left(tmp_path: Path, cases: list[str]) -> None:
    support = str(Path(stop_program.__file__).parent)
    environment = {**os.environ, "PYTHONPATH": support, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, stop_program.__file__, str(tmp_path), *cases],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )
    ended = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(ended) == len(cases), done.stderr[-4000:]
    stopped = [one for one in ended if one["seconds"] is not None]
    assert len(stopped) > len(cases) // 3  # other lines are passed only after another failure
    for one in ended:
        assert one["left"] == [], one
        errors = {"SparkUnavailableError"} if one in stopped else {None}
        assert one["error"] in errors | ({None} if one["case"].startswith(AT_THE_END) else set()), one
        assert one["seconds"] is None or one["seconds"] < SOON_S, one


# --- what a round finds ----------------------------------------------------------------------------


def playing(program: str, folder: Path, **limits: float) -> KillRound:
    """Return a round without troubles whose job is this program."""
    return KillRound(0, folder, plan=Plan(), launch=lambda _: [sys.executable, "-c", program], **limits)


def write_rows(folder: Path, rows: list[kill_program.Row]) -> None:
    epoch = folder / "out" / "epoch=1"
    epoch.mkdir(parents=True)
    (epoch / "part-0").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_rows_are_counted_that_are_missing_or_too_many(tmp_path: Path) -> None:
    _, second, *others = kill_program.expected()
    write_rows(tmp_path, [second, second, second, *others])
    outcome = playing("", tmp_path).run()
    assert (outcome.lost, outcome.doubled) == (1, 2)
    assert outcome.problems() == ["1 rows lost", "2 rows doubled"]


def test_all_is_well(tmp_path: Path) -> None:
    write_rows(tmp_path, kill_program.expected())
    assert playing("", tmp_path).run().problems() == []


def test_who_says_nothing_hangs_and_is_ended(tmp_path: Path) -> None:
    write_rows(tmp_path, kill_program.expected())
    this = playing("import signal; print('epoch 1', flush=True); signal.pause()", tmp_path, silence_s=10)
    (problem,) = this.run().problems()
    assert problem.startswith("hang: program 1 said nothing for 10 s, after '1: epoch 1'")
    assert marked(MARK, this.mark) == []


def test_a_driver_that_fails_again_and_again_does_not_end_well(tmp_path: Path) -> None:
    write_rows(tmp_path, kill_program.expected())
    hang, *strange = playing("raise ValueError('odd')", tmp_path).run().problems()
    assert hang == f"hang: {MAX_RUNS} programs were not enough"
    assert strange == ["ended by itself: ValueError: odd"] * MAX_RUNS


def test_processes_that_are_left_are_told_and_ended_but_not_who_was_forked_to_stay(tmp_path: Path) -> None:
    write_rows(tmp_path, kill_program.expected())
    this = playing("", tmp_path, patience_s=1)
    stays = [sys.executable, "-c", "import signal; signal.pause()"]
    strays = [subprocess.Popen(stays, env={**os.environ, MARK: this.mark}) for _ in range(2)]
    (tmp_path / "children").mkdir()
    (tmp_path / "children" / str(strays[1].pid)).touch()
    (problem,) = this.run().problems()
    assert problem.startswith(f"left behind: {strays[0].pid} ")
    assert marked(MARK, this.mark) == []
    for stray in strays:
        stray.wait()
