"""Rounds of a job that is given trouble at random; afterwards the output is right and nothing is left.

The seed draws a plan: what happens all the time (processes that are stopped again and again, children that
are forked and live on, a failure at one line of the driver, a savepoint to which the job goes back), and what
happens once (processes that are killed or frozen, a context that is stopped, a second driver). Each process
of a round has a mark in its environment, by which it is found whoever its parent is now.

Whatever the round waits for has a bound. The job must say something within ``SILENCE_S``, and a program that
is to end must have ended within ``PATIENCE_S``: otherwise it hangs, and the round says who was waited for.
"""

from __future__ import annotations

import json
import os
import queue
import random
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import attrs
import kill_program
import psutil
from killed_connectors import MOMENTS, SERVED, Server
from processes import Slower, command_of, java_options, marked, quick_start

from pyflinkstate.backends.rocksdb.cold_store import ScratchFolder
from pyflinkstate.runtime.master.checkpoint_files import shared_files
from pyflinkstate.runtime.storage import CheckpointFolders

#: What the slots of some rounds are given up after, rather than after 50 seconds.
SHORT_HEARTBEAT_MS = 5_000

SECOND_DRIVER, FREEZE_SLOT = "second driver", "freeze slot"
#: The driver's SparkContext is stopped, and its JVM goes on.
CONTEXT = "context"
#: All processes of a host, which comes back at once. Only where there are hosts.
HOST = "host"
#: The disk of checkpoints or that of state on disk is full for a moment. Only for root.
FULL_DISK = "full disk"
#: The folders that may have a disk of their own.
DISKS = ("checkpoints", "scratch")
DISK_SIZE = "48m"
#: The target's server, which is started again a moment later. Only where there is one.
SERVER = "server"
THAWS = ("soon", "while the newer one runs", "when the newer one has ended")

LOCAL_KINDS = ("slot", "worker", "jvm", "driver", CONTEXT, FREEZE_SLOT, SECOND_DRIVER)
CLUSTER_KINDS = ("executor", *LOCAL_KINDS)
#: Which seeds have a disk that is full; those on clusters have other ones.
FULL_DISK_EVERY, FULL_DISK_FROM = 5, 2
#: The share of rounds that run ``keyed_process``.
DATAFRAME_SHARE = 0.3


@attrs.frozen
class Plan:
    """What happens in a round.

    Attributes:
        troubles: in this order: a kind of process to kill, ``"context"``, ``"freeze slot"``, ``"second
            driver"``, ``"host"``, ``"server"`` or ``"full disk"``.
        forks: who forks a child that lives on: the driver, the slots.
        is_slowed: processes are stopped for a moment, again and again.
        injection: a line between "epoch asked for" and "epoch running", and how often it is passed before it
            fails.
        savepoint_after: take a savepoint after so many epochs, and go back to it some epochs later.
        heartbeat_timeout_ms: as for the job.
        thaws: when a driver goes on that was frozen as a second one was started.
        waits: each trouble waits for a checkpoint to go back to.
        is_dataframe: the job is a ``keyed_process`` over a streaming DataFrame, with ``initial_state``. It
            takes no savepoint, because a streaming query does not go back.
        target: the connector's target that the job writes to; None for files. It takes no savepoint, because
            what is in a target is not taken back.
        kill_publishing: the first driver kills itself before or after its sink publishes for the n-th time.
        engine: how epochs are run. A streaming query runs in stages.
        backend: ``"hashmap"``, or ``"rocksdb"`` with next to no memory.
    """

    troubles: tuple[str, ...] = ()
    forks: tuple[str, ...] = ()
    is_slowed: bool = False
    injection: tuple[int, int] | None = None
    savepoint_after: int | None = None
    heartbeat_timeout_ms: int = SHORT_HEARTBEAT_MS
    thaws: str = "soon"
    waits: bool = False
    is_dataframe: bool = False
    target: str | None = None
    kill_publishing: tuple[str, int] | None = None
    engine: str = "STAGES"
    backend: str = "hashmap"

    def into(self, target: str, seed: int) -> Plan:
        """Return the plan with output into a target, and perhaps a kill as it gets there."""
        rng = random.Random(f"target {seed}")
        kill = (rng.choice(MOMENTS), rng.randint(2, 6)) if rng.random() < 0.6 else None
        troubles = list(self.troubles)
        if target in SERVED and rng.random() < 0.6:
            troubles.insert(rng.randint(0, len(troubles)), SERVER)
        return attrs.evolve(
            self,
            troubles=tuple(troubles),
            savepoint_after=None,
            is_dataframe=False,
            target=target,
            kill_publishing=kill,
        )

    def on_disk(self, seed: int) -> Plan:
        """Return the plan with state on disk; in one round of five a disk fills up as well."""
        rng, troubles = random.Random(f"disk {seed}"), list(self.troubles)
        if seed % FULL_DISK_EVERY == FULL_DISK_FROM:
            troubles.insert(rng.randint(0, len(troubles)), FULL_DISK)
        return attrs.evolve(self, troubles=tuple(troubles), is_dataframe=False, backend="rocksdb")

    @classmethod
    def drawn(cls, seed: int, kinds: tuple[str, ...] = LOCAL_KINDS) -> Plan:
        """Draw a plan. Rounds with consecutive seeds take consecutive lines for their failures."""
        rng = random.Random(f"plan {seed}")
        troubles = tuple(rng.choice(kinds) for _ in range(rng.choice([1, 2])))
        made = cls(
            troubles,
            tuple(who for who in ("driver", "slot") if rng.random() < 0.25),
            rng.random() < 0.5,
            (seed, rng.randrange(4)) if rng.random() < 0.6 else None,
            rng.randint(1, 5) if rng.random() < 0.35 else None,
            SHORT_HEARTBEAT_MS if FREEZE_SLOT in troubles else rng.choice([SHORT_HEARTBEAT_MS, 50_000]),
            rng.choice(THAWS),
        )
        is_dataframe = rng.random() < DATAFRAME_SHARE
        return attrs.evolve(made, savepoint_after=None, is_dataframe=True) if is_dataframe else made

    def options(self) -> list[str]:
        """Return the program's options for what it does to itself."""
        made = ["--heartbeat-timeout-ms", str(self.heartbeat_timeout_ms)]
        for who in self.forks:
            made += ["--forks", who]
        if self.injection is not None:
            made += ["--inject", *map(str, self.injection)]
        if self.savepoint_after is not None:
            made += ["--savepoint-after", str(self.savepoint_after)]
        made += ["--dataframe"] * self.is_dataframe
        made += ["--engine", self.engine, "--backend", self.backend]
        if self.target is not None:
            made += ["--target", self.target]
        if self.kill_publishing is not None:
            made += ["--kill-publishing", *map(str, self.kill_publishing)]
        return made


MARK = "KILL_ROUND"
#: So long after the program's end its last process must be gone.
PATIENCE_S = 60
#: A job that says nothing for so long makes no progress.
SILENCE_S = 200
#: And a round that takes so long goes in circles.
ROUND_S = 1200
MAX_RUNS = 12
#: What may be killed, by what its command line has in it; of the driver the pid is known.
VICTIMS = {
    "slot": "pyflinkstate.runtime.slots.slot",
    "worker": "pyspark.daemon",
    "executor": "CoarseGrainedExecutorBackend",
    "jvm": "org.apache.spark.deploy.SparkSubmit",
}
#: With what ``spark-submit`` ends when its driver is killed.
KILLED = 128 + signal.SIGKILL
#: What lines of the program begin with; Spark says things as well.
WORDS = ("session", "epoch", "restart", "savepoint", "injected", "stopping", "killed itself")
#: What is done to the driver itself: the word for it, and the signal.
OF_DRIVER = {"driver": ("kill", signal.SIGKILL), CONTEXT: ("stop", signal.SIGUSR2)}
#: What the log says when a context is stopped.
STOPPED = f"stop {CONTEXT}"
#: By what names the summary counts what happened.
KINDS = ("failing line", "second driver")

ERROR = re.compile(r"[\w.]*(Error|Exception|GatewayGone)\b")
#: Is in the line before an error of a Python worker of Spark.
WORKER = "pyspark/daemon.py"
#: How a driver may end by itself, and what must have happened before.
ENDS = {
    "JobSupersededError": (SECOND_DRIVER,),
    "SparkUnavailableError": ("kill jvm", STOPPED),
    "Py4J": ("kill jvm",),
    "ConnectionRefusedError": ("kill jvm",),
    "JAVA_GATEWAY_EXITED": ("kill jvm",),
    "GatewayGone": ("injected",),
}


class Hang(Exception):
    """Somebody waits for ever."""


@attrs.frozen
class Outcome:
    """How a round ended.

    Attributes:
        lost: rows of the undisturbed answer that are missing.
        doubled: rows that are too many.
        hang: who was waited for in vain.
        left: processes that were left, and files that nobody needs any more.
        strange: drivers that ended by themselves, and not for what had happened to them.
    """

    lost: int
    doubled: int
    hang: str | None
    left: tuple[str, ...]
    strange: tuple[str, ...]

    def problems(self) -> list[str]:
        """Return what is not as it must be."""
        found = [f"{self.lost} rows lost"] * bool(self.lost)
        found += [f"{self.doubled} rows doubled"] * bool(self.doubled)
        found += [f"hang: {self.hang}"] * bool(self.hang) + [f"left behind: {each}" for each in self.left]
        return found + [f"ended by itself: {each}" for each in self.strange]


@attrs.define(eq=False)
class Program:
    """One start of the program. What it says goes into ``events``, with None when it has ended."""

    process: subprocess.Popen[str]
    events: queue.SimpleQueue[tuple[Program, str | None]]
    stderr: Path
    is_told_of: bool = False

    def listen(self) -> None:
        """Begin to put what it says into the queue."""
        for thread in (self._read, self._await):
            threading.Thread(target=thread, daemon=True).start()

    def _read(self) -> None:
        """Read until all have closed the pipe: a child that lives on holds it as well."""
        assert self.process.stdout is not None
        with self.process.stdout as said:
            for line in said:
                self.events.put((self, line.strip()))

    def _await(self) -> None:
        self.process.wait()
        self.events.put((self, None))

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def driver_pid(self) -> int:
        """Return the process that runs the program; ``spark-submit`` is a JVM that has it as a child."""
        with suppress(psutil.NoSuchProcess):
            started = psutil.Process(self.process.pid)
            if VICTIMS["jvm"] in command_of(started):
                runs = [each for each in started.children() if kill_program.__file__ in command_of(each)]
                return runs[0].pid if runs else self.process.pid
        return self.process.pid

    def last_words(self) -> str:
        """Return the last line on standard error that begins with the name of an error.

        It is not that of a Python worker of Spark, which may have written to a driver that was ending, nor
        that of one of Spark's threads, which a stack of Java follows.
        """
        lines = ["", *self.stderr.read_text(errors="replace").splitlines(), ""]
        told = [
            line
            for before, line, after in zip(lines, lines[1:], lines[2:], strict=False)
            if ERROR.match(line) and WORKER not in before and not after.startswith("\tat ")
        ]
        return told[-1] if told else "nothing"


def _trouble_of(line: str) -> str:
    """Return what a line of the log says of a trouble; nothing if it is of something else."""
    if line.startswith(("kill", "freeze", STOPPED, "second driver", FULL_DISK)):
        return line.partition(" #")[0]
    if line.startswith("start from savepoint"):
        return "back to savepoint"
    if ": killed itself" in line:
        return f"killed itself {line.split()[3]} it published"
    return f"failing line {line.split()[-1]}" if ": injected" in line else ""


def kind_of(trouble: str) -> str:
    """Return the kind of one of the troubles that happened."""
    return next((kind for kind in KINDS if trouble.startswith(kind)), trouble)


@attrs.define
class KillRound:
    """One job, and its troubles.

    Args:
        seed: decides what happens when; where no plan is given, also what happens.
        directory: for output and checkpoints.
        master: as for Spark.
        plan: what happens.
        launch: what is put around a command.
        archive: of Spark's classes, see ``processes``.
        silence_s: see ``SILENCE_S``.
        patience_s: see ``PATIENCE_S``.
        crash_host: kills all processes of a host, lets it come back, and returns its name.
        server: of the plan's target; it runs.
    """

    seed: int
    directory: Path
    master: str = "local[2]"
    plan: Plan = attrs.field(default=attrs.Factory(lambda self: Plan.drawn(self.seed), takes_self=True))
    launch: Callable[[list[str]], list[str]] = attrs.field(default=lambda command: command)
    archive: Path | None = None
    silence_s: float = SILENCE_S
    patience_s: float = PATIENCE_S
    crash_host: Callable[[random.Random], str] | None = None
    server: Server | None = None
    log: list[str] = attrs.Factory(list)
    mark: str = attrs.field(factory=lambda: uuid.uuid4().hex)
    _programs: list[Program] = attrs.Factory(list)
    _events: queue.SimpleQueue[tuple[Program, str | None]] = attrs.Factory(queue.SimpleQueue)
    _troubles: list[str] = attrs.Factory(list)
    #: Before the next trouble so many epochs are run.
    _epochs_left: int = 0
    #: The savepoint that the job is to go back to, and how many epochs after it was taken.
    _savepoint: str | None = None
    _epochs_to_return: int = 0
    #: The savepoint that it has gone back to: all that there is until the next checkpoint is complete.
    _went_back_to: str | None = None
    _thaws: str = ""
    #: When the job said something last, and how many seconds it took at most until it said what.
    _heard_s: float = attrs.field(factory=time.monotonic)
    longest_silence: tuple[float, str] = (0.0, "")
    _strange: list[str] = attrs.Factory(list)
    _rng: random.Random = attrs.field(
        default=attrs.Factory(lambda self: random.Random(self.seed), takes_self=True)
    )
    _slower: Slower = attrs.field(
        default=attrs.Factory(
            lambda self: Slower(random.Random(f"slow {self.seed}"), self._processes), takes_self=True
        )
    )
    _deadline_s: float = attrs.field(factory=lambda: time.monotonic() + ROUND_S)

    # --- the life of a round -----------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run to the end of the job and say how it went."""
        self._troubles, self._epochs_left = list(self.plan.troubles), self._rng.randint(1, 3)
        hang = None
        with self._disks():
            with self._slowed():
                try:
                    self._live()
                    self._end_older()
                except Hang as error:
                    hang = str(error)
                    self._dump()
            return self.outcome(hang)

    def outcome(self, hang: str | None = None) -> Outcome:
        """Compare the output and look for processes that were left; these are ended then."""
        address = self.server.address if self.server else ""
        found = kill_program.output_of(self.directory, self.plan.target, address)
        rows = Counter(json.dumps(row) for row in found)
        expected = Counter(json.dumps(row) for row in kill_program.expected(self.plan.is_dataframe))
        left = () if hang else tuple(f"{each.pid} {command_of(each)[:300]}" for each in self._left())
        for process in (rest := marked(MARK, self.mark)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(rest, timeout=self.patience_s)
        left += () if hang else tuple(self._files_left())
        lost, doubled = (expected - rows).total(), (rows - expected).total()
        return Outcome(lost, doubled, hang, left, tuple(self._strange))

    def troubles(self) -> list[str]:
        """Return what has happened so far, in order, without process ids; each begins with its kind."""
        always = ["dataframe"] * self.plan.is_dataframe + ["slowed"] * self.plan.is_slowed
        always += [f"{who} forks" for who in self.plan.forks]
        return always + [told for line in self.log if (told := _trouble_of(line))]

    def has_checkpoint(self) -> bool:
        return any(self.directory.rglob("chk-*/_metadata"))

    def _files_left(self) -> Iterator[str]:
        """Yield the files of attempts and checkpoints that were abandoned."""
        scratch, checkpoints = self.directory / "scratch", self.directory / "checkpoints"
        if self.plan.backend == "rocksdb":
            ScratchFolder(str(scratch)).delete()  # the next slot deletes what killed ones have left
            yield from map(str, scratch.iterdir())
        yield from (str(path) for path in checkpoints.rglob("*") if ".inprogress" in path.name)
        storage = CheckpointFolders(str(checkpoints))
        for job_id in storage.job_ids():
            found = [path.parent for path in (checkpoints / job_id).rglob("_metadata")]
            operators = [one for path in found for one in storage.load(str(path)).operators]
            states = [subtask for operator in operators for subtask in operator.subtasks]
            yield from (f"{job_id} {path}" for path in storage.shared_paths(job_id) - shared_files(states))
            yield from (str(path) for path in (checkpoints / job_id).glob("chk-*") if path not in found)

    @contextmanager
    def _disks(self) -> Iterator[None]:
        """Give the folders that may fill up a small disk each."""
        with ExitStack() as mounted:
            for name in DISKS if FULL_DISK in self.plan.troubles else ():
                folder = self.directory / name
                folder.mkdir()
                mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_SIZE}", "tmpfs", str(folder)]
                subprocess.run(mount, check=True)
                mounted.callback(subprocess.run, ["umount", "-l", str(folder)], check=True)
            yield

    def _fill_disk(self) -> None:
        """Take all the room of a disk for a moment, and again whenever some of it is given back."""
        name = self._rng.choice(DISKS)
        self.log.append(f"full disk, {name}")
        ends_s = time.monotonic() + self._rng.uniform(0.5, 6)
        path = self.directory / name / "other"
        with open(path, "ab", buffering=0) as file:
            while time.monotonic() < ends_s:
                with suppress(OSError):
                    while file.write(bytes(4096)):
                        pass
                time.sleep(0.02)
        path.unlink()
        self.log.append("there is room")

    @contextmanager
    def _slowed(self) -> Iterator[None]:
        if self.plan.is_slowed:
            self._slower.start()
        try:
            yield
        finally:
            self._slower.end()

    def _live(self) -> None:
        self._begin(None)
        while True:
            program, line = self._hear()
            if program is not self._newest:
                self._older_said(program, line)
            elif line is not None:
                self._newest_said(line)
            elif self._has_finished(program):
                return

    def _hear(self) -> tuple[Program, str | None]:
        left_s = min(self.silence_s, self._deadline_s - time.monotonic())
        try:
            program, line = self._events.get(timeout=max(left_s, 0))
        except queue.Empty:
            silent = f"program {len(self._programs)} said nothing for {left_s:.0f} s"
            raise Hang(f"{silent}, after {self.log[-1]!r}") from None
        if line is not None and line.startswith(WORDS):
            self.log.append(f"{self._programs.index(program) + 1}: {line}")
            now_s = time.monotonic()
            self.longest_silence = max(self.longest_silence, (now_s - self._heard_s, self.log[-1]))
            self._heard_s = now_s
        return program, line

    def _newest_said(self, line: str) -> None:
        if line.startswith("savepoint ") and self._savepoint is None:
            self._savepoint = line.removeprefix("savepoint ")
            self._epochs_to_return = self._rng.randint(1, 3)
        if line.startswith("epoch"):
            self._thaw("while the newer one runs")
            self._epoch_has_run()

    def _epoch_has_run(self) -> None:
        self._epochs_to_return -= 1
        if self._epochs_to_return == 0 and self._savepoint is not None:
            self._kill("driver", self._newest.driver_pid())  # the next one goes back
            return
        self._epochs_left -= 1
        if self._epochs_left <= 0 and self._troubles:
            time.sleep(self._rng.uniform(0, 0.4))  # anywhere in what follows
            self._trouble(self._troubles.pop(0))
            self._epochs_left = self._rng.randint(1, 3)

    def _has_finished(self, program: Program) -> bool:
        """Return whether all is done; otherwise the program is started again."""
        self._check_end(program)
        if program.process.returncode == 0 and self._savepoint in (None, ""):
            return True
        self._begin(self._savepoint or ("latest" if self.has_checkpoint() else self._went_back_to))
        return False

    def _check_end(self, program: Program) -> None:
        """Note an end that nothing explains which had happened."""
        if program.is_told_of:
            return
        program.is_told_of = True
        code = program.process.returncode
        words = program.last_words() if code > 0 else ""
        self.log.append(f"{self._programs.index(program) + 1} ended with {code} {words[:120]}".strip())
        has_cause = [
            name in words and any(cause in line for cause in causes for line in self.log)
            for name, causes in ENDS.items()
        ]
        has_cause.append(code == KILLED and any(line.startswith("kill driver") for line in self.log))
        if code > 0 and not any(has_cause):
            self._strange.append(words)

    # --- programs ------------------------------------------------------------------------------------

    @property
    def _newest(self) -> Program:
        return self._programs[-1]

    def _begin(self, restore: str | None) -> None:
        if len(self._programs) == MAX_RUNS:
            raise Hang(f"{MAX_RUNS} programs were not enough")
        if restore is not None and restore == self._savepoint:
            self._went_back_to, self._savepoint = restore, ""  # once
        parallelism = self._rng.choice([1, 2, 3]) if restore else 2
        options = self.plan.options() if not self._programs else self.plan_of_later().options()
        process = self.start(parallelism, restore, options)
        self._programs.append(program := Program(process, self._events, self._stderr()))
        program.listen()

    def plan_of_later(self) -> Plan:
        """What the first program did to itself, later ones do not, but for what they fork."""
        savepoint_after = self.plan.savepoint_after if self._savepoint is None else None
        return attrs.evolve(self.plan, injection=None, savepoint_after=savepoint_after, kill_publishing=None)

    def start(
        self, parallelism: int, restore: str | None, options: list[str] | None = None
    ) -> subprocess.Popen[str]:
        """Start the program; what it says comes on its standard output."""
        command = [sys.executable, kill_program.__file__, str(self.directory), "--master", self.master]
        command += [f"--java-options={java_options(self.archive)}"]
        command += ["--server", self.server.address] if self.server else []
        command += ["--parallelism", str(parallelism), *(["--restore", restore] if restore else [])]
        self.log.append(f"start {f'from {Path(restore).name} ' if restore else ''}at {parallelism}")
        here, settings = Path(__file__).parent, self.directory / "conf"
        settings.mkdir(exist_ok=True)
        env = {
            **quick_start(settings),
            **os.environ,
            "SPARK_CONF_DIR": str(settings),
            MARK: self.mark,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(here), os.environ.get("PYTHONPATH")])),
        }
        with open(self._stderr(), "ab") as stderr:
            return subprocess.Popen(
                self.launch([*command, *(options or [])]),
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=env,
            )

    def _stderr(self) -> Path:
        return self.directory / f"stderr-{len(self._programs) + 1}.txt"

    def _processes(self) -> list[psutil.Process]:
        """Return all that run, but for what was forked to live on."""
        children = self._children()
        return [process for process in marked(MARK, self.mark) if process.pid not in children]

    def _children(self) -> set[int]:
        return {int(path.name) for path in (self.directory / "children").glob("*")}

    def _left(self) -> list[psutil.Process]:
        """Return what has not ended in time; what was forked may live on."""
        deadline = time.monotonic() + self.patience_s
        while (left := self._processes()) and time.monotonic() < deadline:
            psutil.wait_procs(left, timeout=0.2)
        return left

    def _dump(self) -> None:
        """Have all drivers write where they are, and note who is there."""
        for program in self._programs:
            if not program.has_ended():
                with suppress(ProcessLookupError):
                    program.process.send_signal(signal.SIGUSR1)
        time.sleep(2)  # they write it when they get to it; whether they do tells something as well
        for process in marked(MARK, self.mark):
            with suppress(psutil.NoSuchProcess):
                self.log.append(f"there: {process.pid} {process.status()} {command_of(process)[-100:]}")

    # --- troubles --------------------------------------------------------------------------------------

    def _trouble(self, kind: str) -> None:
        if self.plan.waits and not self.has_checkpoint():
            self._troubles.insert(0, kind)
        elif kind in (SECOND_DRIVER, HOST, SERVER, FULL_DISK):
            makes = {
                SECOND_DRIVER: self._start_second_driver,
                HOST: self._crash_host,
                SERVER: self._crash_server,
                FULL_DISK: self._fill_disk,
            }
            makes[kind]()
        elif kind == FREEZE_SLOT:
            for slot in self._victims("slot")[:1]:
                self._freeze("slot", slot)
        elif kind in OF_DRIVER:
            word, which = OF_DRIVER[kind]
            self._signal(word, kind, self._newest.driver_pid(), which)
        else:
            for victim in self._victims(kind)[:1]:
                self._kill(kind, victim.pid)

    def _crash_host(self) -> None:
        assert self.crash_host is not None
        self.log.append(f"kill host #{self.crash_host(self._rng)}")

    def _crash_server(self) -> None:
        """Kill the target's server, and start it again with its data."""
        assert self.server is not None
        self.log.append("kill server")
        self.server.kill()
        time.sleep(self._rng.uniform(0, 3))
        self.server.start()
        self.log.append("server is back")

    def _victims(self, kind: str) -> list[psutil.Process]:
        """Return all processes of a kind, in any order."""
        found = [process for process in self._processes() if VICTIMS[kind] in command_of(process)]
        return self._rng.sample(found, len(found))

    def _kill(self, kind: str, pid: int) -> None:
        self._signal("kill", kind, pid, signal.SIGKILL)

    def _signal(self, word: str, kind: str, pid: int, which: signal.Signals) -> None:
        self.log.append(f"{word} {kind} #{pid}")
        with suppress(ProcessLookupError):
            os.kill(pid, which)

    def _freeze(self, kind: str, process: psutil.Process) -> None:
        self.log.append(f"freeze {kind} #{process.pid}")
        with self._slower.lock, suppress(psutil.NoSuchProcess):
            self._slower.frozen.add(process)
            process.suspend()

    def _start_second_driver(self) -> None:
        """Freeze the driver, and start another one, as a supervisor does that takes it for dead."""
        if self._newest.has_ended():
            return
        if not self.has_checkpoint():  # another one would begin another job
            self._troubles.insert(0, SECOND_DRIVER)
            return
        self._freeze("driver", psutil.Process(self._newest.process.pid))
        self._thaws = self.plan.thaws
        self.log.append(f"second driver; the first goes on {self._thaws}")
        self._begin("latest")
        if self._thaws == "soon":
            time.sleep(self._rng.uniform(0, 8))
            self._thaw("soon")

    def _thaw(self, when: str | None = None) -> None:
        """Have frozen drivers go on, if that is due; None: all of them."""
        if when not in (None, self._thaws):
            return
        for program in self._older():
            self._thaws = ""
            process = psutil.Process(program.process.pid)
            if process in self._slower.frozen:
                self.log.append(f"thaw #{process.pid}")
                self._slower.frozen.discard(process)
                process.resume()

    # --- older drivers -----------------------------------------------------------------------------------

    def _older(self) -> list[Program]:
        return [program for program in self._programs[:-1] if not program.has_ended()]

    def _older_said(self, program: Program, line: str | None) -> None:
        if line is None:
            self._check_end(program)

    def _end_older(self) -> None:
        """Older drivers go on now, and must end soon."""
        self._thaw()
        deadline = time.monotonic() + self.patience_s
        for program in self._older():
            try:
                program.process.wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                raise Hang(f"driver {program.process.pid} has a newer one, and does not end") from None
        for program in self._programs:
            self._check_end(program)
