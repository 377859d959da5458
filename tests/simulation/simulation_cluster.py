"""Time, faults and the driver's surroundings in the failure simulation: a seeded scheduler.

Everything that happens beside the driver's own thread is an event with a time; whoever waits lets events
happen: the job master in its mailbox, or while it sleeps, and now and then between two of its operations on
the storage. What goes wrong is decided here as well.
"""

from __future__ import annotations

import heapq
import queue
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import attrs
from simulation_draws import Draws
from simulation_storage import FINE, Disk, Killed, Operation, Process, Verdict

from pyflinkstate.runtime.wire.messages import BeginEpoch, SlotId

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
#: No history takes so many; one that does goes round in circles.
MAX_STEPS = 40_000
#: So many times as often a driver is frozen where that is most delicate.
DELICATE = 4
#: How often others go on while the driver is at one operation of its storage.
INTERLEAVED = 0.04
CHANGES = frozenset({"create folder", "open", "write", "close", "move", "delete", "delete folder"})
_CHECKPOINT_FOLDER = re.compile(r".*?/(chk-\d+|shared|savepoint-[^/]+)(?=/|$)")
#: If one of these fails in a checkpoint's folder, it is not known what the checkpoint shares, or whether it
#: is still there: so what it may share has to stay.
CAUTION = frozenset({"look", "read", "delete", "delete folder", "flush"})
#: Of these a part may happen.
INTERRUPTIBLE = frozenset({"write", "delete folder"})


@attrs.frozen
class Mishap:
    """One operation fails after some part of it (of most: all or nothing), and may kill who does it.

    With ``cuts_power``, everything else dies as well.
    """

    part: float
    kills: bool = False
    cuts_power: bool = False


class Chaos:
    """Decides what goes wrong.

    ``rates`` are probabilities by kind of fault, ``left`` is how many may be, and before so many checkpoints
    as ``quiet`` says have appeared there are none: else most would come before the first one.
    """

    def __init__(self, draw: Draws, rates: dict[str, float], left: int, quiet: int = 0) -> None:
        self.draw = draw
        self.rates = rates
        self.left = left
        self.quiet = quiet
        self.struck: Counter[str] = Counter()

    def strikes(
        self, fault: str, at: str = "", is_possible: Callable[[], bool] = lambda: True, weight: int = 1
    ) -> bool:
        """Return whether this fault happens now; only where it should, it is asked whether it can.

        ``at`` is what it would happen to: others are then drawn apart from it.
        """
        rate = self.rates.get(fault, 0.0) * weight
        if not rate or not self.left or self.quiet > 0:
            return False
        if self.draw(f"{fault} {at}").random() >= rate or not is_possible():
            return False
        self.left -= 1
        self.struck[fault] += 1
        return True


class Cluster:
    """Time, storage, processes, and what is about to happen."""

    def __init__(self, draw: Draws, chaos: Chaos) -> None:
        self.draw = draw
        self.chaos = chaos
        self.now_ms = START_MS
        #: Who looks at the disk from outside of the simulation: nothing happens to it.
        self.user = Process("user")
        self.disk = Disk(self.user)
        self.disk.decide = self._decide
        self.driver = Process("no driver")
        #: What happens at the driver's end, while it lives.
        self.hang_up: Callable[[], None] = lambda: None
        self.slots: list[Process] = []
        self.tasks: list[Process] = []
        #: Drivers that stand still.
        self.frozen: list[Process] = []
        #: How far the clock on the wall is from the time that passes.
        self.wall_offset_ms = 0
        #: Called after the power was cut, when the host is up again, with the files that were there before,
        #: and the paths of what came back.
        self.power_is_back: Callable[[set[str], set[str]], None] = lambda before, came_back: None
        #: What has happened, of which nobody else takes note.
        self.seen: Counter[str] = Counter()
        #: Told of what the driver says to slots.
        self.overhear: Callable[[object], None] = lambda message: None
        self.steps = 0
        self.driver_operations = 0
        #: By number of the driver's operation: what a directed scenario wants of it.
        self.script: dict[int, Mishap] = {}
        #: The same, by the operation itself.
        self.scenario: Callable[[Operation], Mishap | None] = lambda operation: None
        #: Folders of checkpoints, or the shared one, in which an operation has failed.
        self.disturbed: set[str] = set()
        #: Those that a driver has changed after a second one had run: it deletes what it has left there.
        self.superseded_in: set[str] = set()
        #: Folders of jobs that could not be listed when that was tried last: what is in there is not known.
        self.unlisted: set[str] = set()
        #: Called when the driver is frozen at an operation: a second one runs meanwhile.
        self.while_frozen: Callable[[], None] = lambda: None
        #: Whether there is something that a second driver could go on with.
        self.may_freeze: Callable[[], bool] = lambda: False
        #: A second driver has run: what this one still does must harm nobody.
        self.is_superseded = False
        self._full_until_ms = 0
        #: Of so many operations from now on every third one fails.
        self._flaky = 0
        self._scheduled = 0
        self._power_cuts = 0
        self._events: list[tuple[int, float, int, Callable[[], None]]] = []

    # --- time --------------------------------------------------------------------------------------

    def at(self, delay_ms: int, happen: Callable[[], None]) -> None:
        """Have something happen; what happens at the same time comes in any order."""
        self._scheduled += 1
        event = (self.now_ms + delay_ms, self.draw("order").random(), self._scheduled, happen)
        heapq.heappush(self._events, event)

    def soon(self, happen: Callable[[], None]) -> None:
        """Have something happen after a delay as it is usual."""
        delay = self.draw("soon").random()
        self.at(0 if delay < 0.3 else int(delay * 4) if delay < 0.95 else int(delay * 30), happen)

    def slowly(self, happen: Callable[[], None]) -> None:
        """Have something happen when it may take its time."""
        self.at(self.draw("slowly").randrange(40), happen)

    def stall_ms(self) -> int:
        """Return for how long something hangs: most often it does not."""
        return self.draw("stall of").choice([80, 300, 900]) if self.chaos.strikes("stall") else 0

    def step(self, until_ms: int | None = None) -> bool:
        """Let the next thing happen; False if nothing does until then."""
        if not self._events or (until_ms is not None and self._events[0][0] > until_ms):
            assert until_ms is not None, "the driver waits for what will never come"
            self.now_ms = max(self.now_ms, until_ms)
            return False
        time_ms, _, _, happen = heapq.heappop(self._events)
        self.now_ms = max(self.now_ms, time_ms)
        self.steps += 1
        assert self.steps < MAX_STEPS, "the simulation does not come to an end"
        happen()
        if self.chaos.left:
            self._strike()
        return True

    def _strike(self) -> None:
        if not self.driver.dead and self.chaos.strikes("kill the driver"):
            self.kill(self.driver)
        if self.chaos.strikes("crash a slot"):
            self.slots = [slot for slot in self.slots if not slot.dead]
            if self.slots:
                self.kill(self.draw("which slot").choice(self.slots))
        if self.chaos.strikes("cut the power"):
            self._cut_the_power()
        if self.chaos.strikes("set the clock"):
            self.wall_offset_ms += self.draw("clock").choice([-HOUR_MS, HOUR_MS])
        if self.chaos.strikes("fill the disk"):
            self._full_until_ms = self.now_ms + self.draw("disk is full for").choice([5, 50, 200])

    def _cut_the_power(self) -> None:
        """Everything dies at once, and what was not flushed to the disk may be gone."""
        self.end_driver()
        for process in (*self.frozen, *self.slots, *self.tasks):
            with suppress(Killed), self.disk.used_by(process):
                process.dead = True
                process.kill()
        self.slots.clear()
        self.tasks.clear()
        before = set(self.disk.files)
        self._power_cuts += 1
        self.power_is_back(before, self.disk.power_cut(self.draw(f"power cut {self._power_cuts}")))

    def wall_ms(self) -> int:
        """Return what a clock shows."""
        return self.now_ms + self.wall_offset_ms

    def run(self, process: Process, action: Callable[..., Any], *arguments: Any) -> Any:
        """Let a process do something; None if it is dead, or dies of it."""
        if process.dead:
            return None
        with self.disk.used_by(process):
            try:
                return action(*arguments)
            except Killed as killed:
                if killed.process is not process:
                    raise
                return None

    # --- processes ---------------------------------------------------------------------------------

    def start_driver(self) -> Process:
        """Return the process of a new program; the one before has ended."""
        self.end_driver()
        self.driver = Process("driver")
        return self.driver

    def end_driver(self) -> None:
        """The driver's process is over: its connections break."""
        self.driver.kill()
        self.hang_up()
        self.hang_up = lambda: None

    def kill(self, process: Process) -> None:
        """Kill a process, at once."""
        if process is self.driver:
            self.end_driver()
        else:
            process.kill()

    def run_epoch(
        self, address: Any, secret: bytes, slot_id: SlotId, begin: BeginEpoch, frames: Iterator[bytes]
    ) -> Iterator[Any]:
        """Stands in for ``slot_client.run_epoch``; yields None where others may go on."""
        return address.host.feed(begin, frames)

    # --- the disk ----------------------------------------------------------------------------------

    def _decide(self, operation: Operation) -> Verdict:
        if operation.process is self.user:
            return FINE
        if operation.process is self.driver:
            self.driver_operations += 1
            scripted = self.script.pop(self.driver_operations, None) or self.scenario(operation)
            if scripted is not None:
                self.chaos.struck["scripted"] += 1
                return self._answer(operation, scripted)
            self._freeze(operation)
            self._interleave(operation)
            self._note_superseded(operation)
        if self.now_ms < self._full_until_ms and operation.name == "write":
            return Verdict(0.5, OSError(28, "no space left on device", operation.path))
        mishap = self._mishap(operation) if self.chaos.left or self._flaky else None
        if operation.name == "list":
            self.unlisted.discard(operation.path)
        return FINE if mishap is None else self._answer(operation, mishap)

    def end_faults(self) -> None:
        """Let nothing fail from now on; storage that was flaky works again."""
        self.chaos.left = self._flaky = 0

    def _freeze(self, operation: Operation) -> None:
        """A supervisor takes the driver for dead and starts another; then the first goes on right here."""
        if self.is_superseded or self.frozen:
            return
        # Between a look at who has something and the deed.
        is_delicate = operation.name in ("look", "list") and "_runs" in operation.path
        if self.chaos.strikes(
            "freeze the driver", operation.name, self.may_freeze, DELICATE if is_delicate else 1
        ):
            driver, hang_up = self.driver, self.hang_up
            self.driver, self.hang_up = Process("no driver"), lambda: None
            self.frozen.append(driver)
            self.while_frozen()
            self.frozen.remove(driver)
            self.end_driver()
            self.driver, self.hang_up = driver, hang_up
            driver.check()

    def _note_superseded(self, operation: Operation) -> None:
        if (
            self.is_superseded
            and operation.name in CHANGES
            and (found := _CHECKPOINT_FOLDER.match(operation.path))
        ):
            self.superseded_in |= {found[0], found[0].rpartition("/")[0] + "/shared"}

    def _interleave(self, operation: Operation) -> None:
        """While the driver is at its storage, others go on; it may be dead when they have."""
        if self.draw(f"interleave {operation.name}").random() < INTERLEAVED:
            for _ in range(self.draw("interleaved").randint(1, 4)):
                self.step(self.now_ms + 3)
            self.driver.check()

    def _mishap(self, operation: Operation) -> Mishap | None:
        chaos, name = self.chaos, operation.name
        if name in CHANGES and chaos.strikes("kill at the disk", name):
            return Mishap(self.draw("killed after").choice([0.0, 0.5, 1.0]), kills=True)
        if chaos.strikes("flaky disk", name):
            self._flaky = self.draw("flaky for").randint(3, 30)
        self._flaky = max(0, self._flaky - 1)
        if chaos.strikes("disk error", name) or (self._flaky and self.draw("flaky").random() < 0.3):
            return Mishap(0.5)
        return Mishap(1.0) if chaos.strikes("late disk error", name) else None

    def _answer(self, operation: Operation, mishap: Mishap) -> Verdict:
        part = mishap.part if operation.name in INTERRUPTIBLE else float(mishap.part == 1)
        if mishap.kills:
            self.kill(operation.process)
            if mishap.cuts_power:
                self.at(0, self._cut_the_power)
            return Verdict(part, Killed(operation.process))
        if found := _CHECKPOINT_FOLDER.match(operation.path):
            self.disturbed.add(found[0])
            if operation.name in CAUTION:
                self.disturbed.add(found[0].rpartition("/")[0] + "/shared")
        elif operation.name == "list":
            self.unlisted.add(operation.path)
        return Verdict(part, OSError(5, "input/output error", operation.path))


# --- the driver's surroundings -----------------------------------------------------------------------


class Mailbox:
    """The job master's mailbox: while it waits, everything else goes on."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._driver = cluster.driver
        self._events: deque[Any] = deque()

    def put(self, event: Any) -> None:
        self._events.append(event)

    def empty(self) -> bool:
        self._driver.check()
        return not self._events

    def get_nowait(self) -> Any:
        if self.empty():
            raise queue.Empty
        return self.get()

    def get(self, timeout: float | None = None) -> Any:
        self._driver.check()
        cluster = self._cluster
        until_ms = None if timeout is None else cluster.now_ms + int(timeout * 1000)
        if self._events and cluster.draw("mail waits").random() < 0.2:
            cluster.step(cluster.now_ms + 3)
            self._driver.check()
        while not self._events:
            if not cluster.step(until_ms):
                raise queue.Empty
            self._driver.check()
        return self._events.popleft()


class SimulatedClock:
    """The driver's clock: while it sleeps, everything else goes on."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._driver = cluster.driver

    def now_ms(self) -> int:
        return self._cluster.wall_ms()

    def monotonic_ms(self) -> int:
        return self._cluster.now_ms - START_MS

    def receive(self, mailbox: Mailbox, timeout_ms: int) -> Any | None:
        try:
            return mailbox.get(timeout_ms / 1000)
        except queue.Empty:
            return None
