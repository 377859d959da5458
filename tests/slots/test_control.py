"""The driver's side of the control connections: the registry of slots, the server, and heartbeats."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from slot_functions import BacktrackAWhile, Count, ForkAndStay
from support_runtime import PATIENCE_S, ack, decline, handle, next_event, raising, receive, wait_for_exit
from support_slots import SLOT, ActedSlot, Driver, deployment, frames_for, in_thread, outcome

from pyflinkstate.errors import ConfigurationError, RuntimeFailure, SlotLostError
from pyflinkstate.runtime.slots import ControlServer, Endpoint, SlotLost, SlotRegistry, control
from pyflinkstate.runtime.tasks import slot_client
from pyflinkstate.runtime.tasks.slot_client import run_epoch
from pyflinkstate.runtime.wire import (
    AbortCheckpoint,
    AcquireSlot,
    Address,
    BeginEpoch,
    Channel,
    CloseSlot,
    Heartbeat,
    HeartbeatSettings,
    PackageCopy,
    RegisterSlot,
    SlotAvailable,
    SlotClosed,
    SlotFailed,
    SlotId,
    SlotOutput,
    SlotUnavailable,
    StartSlot,
    StateMaterialized,
    TaskReport,
)

ADDRESS = Address("127.0.0.1", 4_000)
OTHER = SlotId("count-1", 1)
BROKEN = RuntimeFailure("broken")


def ask(driver: Driver, slot: SlotId = SLOT, attempt: int = 0) -> Channel:
    connection = driver.connect()
    connection.send(AcquireSlot(attempt, slot))
    return connection


def act(driver: Driver, slot: SlotId = SLOT, attempt: int = 0) -> ActedSlot:
    return ActedSlot(driver.control.address, driver.secret, slot, attempt)


@pytest.fixture
def deployable(driver: Driver) -> Driver:
    for slot in (SLOT, OTHER):
        driver.deployments[slot] = deployment(None, slot.subtask, 2)  # type: ignore[arg-type]
    return driver


def test_tasks_get_the_address_when_the_slot_is_ready(deployable: Driver) -> None:
    starter = ask(deployable)
    assert receive(starter) == StartSlot()
    others = [ask(deployable) for _ in range(5)]
    slot = act(deployable)
    assert slot.deployed() == deployable.deployments[SLOT]
    slot.ready()
    assert [receive(task) for task in (starter, *others)] == [SlotAvailable(slot.listens_at)] * 6
    assert deployable.registry.addresses() == {SLOT: slot.listens_at}
    assert deployable.registry.pids() == {SLOT: os.getpid()}


def test_the_starter_that_goes_away_hands_over(deployable: Driver) -> None:
    starter, heir = ask(deployable), ask(deployable)
    (first,) = wait([starter, heir], PATIENCE_S)
    assert receive(first) == StartSlot()
    first.close()
    assert receive(heir if first is starter else starter) == StartSlot()


def test_a_slot_that_cannot_start_is_told_to_its_tasks_and_to_the_job(deployable: Driver) -> None:
    task = ask(deployable)
    assert receive(task) == StartSlot()
    slot = act(deployable)
    slot.deployed()
    slot.connection.send(SlotFailed(BROKEN))
    assert str(receive(task).error) == "broken"
    event = next_event(deployable.events, SlotLost)
    assert (event.attempt, event.slot, str(event.error)) == (0, SLOT, "broken")
    with pytest.raises(RuntimeFailure, match="broken"):
        deployable.link.acquire_slot(SLOT)


@pytest.mark.parametrize("ready", [True, False], ids=["ready", "starting"])
def test_a_slot_that_vanishes_is_lost(
    deployable: Driver, ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The task that has started it does not say with which exit code it ended.
    monkeypatch.setattr(control, "_START_ENDED_S", 0.0)
    task = ask(deployable)
    assert receive(task) == StartSlot()
    slot = act(deployable)
    slot.deployed()
    if ready:
        slot.ready()
        assert receive(task) == SlotAvailable(slot.listens_at)
    slot.connection.close()
    event = next_event(deployable.events, SlotLost)
    assert isinstance(event.error, SlotLostError)
    assert event.error.recoverable
    assert f"state slot count-1[0] (process {os.getpid()} at 127.0.0.1) died" in str(event.error)
    if not ready:
        assert isinstance(receive(task), SlotUnavailable)
    assert deployable.registry.addresses() == deployable.registry.pids() == {}


def test_what_a_slot_tells_of_checkpoints_and_of_its_output_becomes_events(deployable: Driver) -> None:
    slot = act(deployable)
    slot.deployed()
    slot.ready()
    materialized = StateMaterialized(4, SLOT, handle())
    output = SlotOutput(SLOT, ((20, "a line"),))
    for message in (ack(3, SLOT), ack(3, SLOT), ack(4, SLOT), materialized, output):
        slot.connection.send(message)
        assert deployable.events.get(timeout=PATIENCE_S) == message
    slot.connection.send(decline(5, SLOT))
    assert str(deployable.events.get(timeout=PATIENCE_S).error) == "disk full"


def test_reports_of_tasks_become_events_before_the_task_goes_on(deployable: Driver) -> None:
    report = TaskReport(0, 3, "map[1]", {"map.records_in": 5}, ("rejected",))
    deployable.link.report(report)
    assert deployable.events.get_nowait() == report


def test_tasks_and_slots_of_another_attempt_are_refused(deployable: Driver) -> None:
    newer = deployable.control.new_attempt(2)
    for attempt in (0, 1, 3):
        with ask(deployable, attempt=attempt) as task, pytest.raises(EOFError):
            receive(task)
        with act(deployable, attempt=attempt).connection as slot, pytest.raises(EOFError):
            receive(slot)
    assert newer.pids() == {}
    assert receive(ask(deployable, attempt=2)) == StartSlot()
    assert deployable.events.empty()


def test_a_new_attempt_cuts_off_the_one_before(deployable: Driver) -> None:
    slot, task = act(deployable), ask(deployable, OTHER)
    slot.deployed()
    assert receive(task) == StartSlot()
    deployable.control.new_attempt(1)
    for connection in (slot.connection, task):
        with pytest.raises(EOFError):
            receive(connection)
    lost = next_event(deployable.events, SlotLost)
    assert lost.attempt == 0, "so the job can tell that this is no failure of the new attempt"


def test_a_second_slot_for_one_subtask_is_sent_away(deployable: Driver) -> None:
    first = act(deployable)
    first.deployed()
    with pytest.raises(EOFError):
        act(deployable).deployed()
    first.ready()
    assert receive(ask(deployable)) == SlotAvailable(first.listens_at)


def test_a_slot_that_closes_with_an_error_is_told_to_the_job(deployable: Driver) -> None:
    slot = act(deployable)
    slot.deployed()
    slot.ready()
    closing = in_thread(lambda: deployable.registry.close(PATIENCE_S))
    assert receive(slot.connection) == CloseSlot()
    slot.connection.send(SlotClosed(BROKEN))
    assert outcome(closing) is None
    assert str(deployable.events.get_nowait().error) == "broken"


def test_a_slot_that_dies_while_it_closes_does_not_keep_the_job_waiting(deployable: Driver) -> None:
    slot = act(deployable)
    slot.deployed()
    closing = in_thread(lambda: deployable.registry.close(10**6))
    assert receive(slot.connection) == CloseSlot()
    slot.connection.close()
    assert outcome(closing) is None


def test_nobody_is_served_after_the_close(deployable: Driver) -> None:
    waiting = ask(deployable)
    assert receive(waiting) == StartSlot()
    deployable.control.close()
    with pytest.raises(EOFError):
        receive(waiting)
    with pytest.raises(OSError, match=r"refused|cannot authenticate"):
        ask(deployable)


def test_a_task_that_waits_when_the_driver_ends_is_told_so(deployable: Driver) -> None:
    starter = ask(deployable)
    assert receive(starter) == StartSlot()
    waiting = in_thread(lambda: deployable.link.acquire_slot(SLOT))
    deployable.control.close()
    assert isinstance(outcome(waiting), OSError)


def test_a_port_that_is_taken_is_a_matter_of_settings(deployable: Driver) -> None:
    taken = Endpoint(port=deployable.control.address.port)
    with pytest.raises(ConfigurationError, match=r"cannot listen on 127\.0\.0\.1, port \d+[\s\S]*port"):
        ControlServer(taken, b"", deployable.events, raising(KeyError()))


def test_a_peer_that_says_nothing_keeps_nobody_waiting(deployable: Driver) -> None:
    address = deployable.control.address
    with socket.create_connection((address.host, address.port)):
        assert receive(ask(deployable)) == StartSlot()


OWN = PackageCopy.here()


@pytest.mark.parametrize(
    ("other", "program", "said"),
    [
        (attrs.evolve(OWN, folder="/checkout"), OWN, "runs another copy"),
        (attrs.evolve(OWN, folder="/checkout", host="another"), OWN, ""),
        (attrs.evolve(OWN, folder="/packages/package.zip"), OWN, ""),
        (attrs.evolve(OWN, is_compiled=False), attrs.evolve(OWN, is_compiled=True), "runs it interpreted"),
        (attrs.evolve(OWN, is_compiled=True), attrs.evolve(OWN, is_compiled=False), ""),
        (OWN, OWN, ""),
    ],
)
def test_which_copies_of_the_package_differ(other: PackageCopy, program: PackageCopy, said: str) -> None:
    assert other.difference(program).startswith(said)
    assert bool(other.difference(program)) == bool(said)


def test_workers_and_slots_with_another_copy_of_the_package_are_one_warning(
    deployable: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    other = attrs.evolve(OWN, folder="/checkout")
    for _ in range(2):
        deployable.link.report(TaskReport(0, 1, "map[0]", package=other))
    connection = deployable.connect()
    connection.send(RegisterSlot(0, SLOT, os.getpid(), ADDRESS, other))
    receive(connection)
    (record,) = caplog.records
    assert "a Python worker on" in record.getMessage()
    assert "imports pyflinkstate from /checkout" in record.getMessage()
    assert "start it in another folder" in record.getMessage()


@attrs.frozen
class Peer:
    """Both ends of a connection: the registry's, and the one that the task or slot reads."""

    theirs: Channel
    ours: Channel

    def heard(self) -> Any:
        """What has come so far: one message, None, or the end."""
        if not self.ours.poll(0):
            return None
        try:
            return self.ours.recv()
        except EOFError:
            return "cut off"


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    made = [Peer(*map(Channel, socket.socketpair())) for _ in range(4)]
    yield made
    for peer in made:
        peer.theirs.close()
        peer.ours.close()


@pytest.fixture
def registry() -> SlotRegistry:
    return SlotRegistry(0)


def heard(peers: list[Peer]) -> list[Any]:
    return [peer.heard() for peer in peers]


def register(registry: SlotRegistry, peer: Peer, slot: SlotId = SLOT, pid: int = 77) -> bool:
    return registry.register(RegisterSlot(0, slot, pid, ADDRESS), peer.theirs)


#: What a peer hears: nothing, to start a slot, where it is, that there is none, the end.
LETTERS = {type(None): ".", StartSlot: "s", SlotAvailable: "a", SlotUnavailable: "u", str: "x"}


@pytest.mark.parametrize(
    "steps",
    [
        "ask-0=s... ask-1 ask-2 registers-3 ready=aaa. ask-0=a...",
        "ask-0=s... ask-other-1=.s..",
        "ask-0=s... ask-1 ask-2 leaves-0=.s.. leaves-1=..s. leaves-2 ask-3=...s",
        "ask-0=s... ask-1 ask-2 leaves-1 leaves-0=..s.",
        "ask-0=s... ask-1 registers-3 leaves-0 ready=aa..",
        "registers-0 refused-1 registers-other-2",
        "ask-0=s... ask-1 fails=uu.. ask-2=..u. fails ask-3=...u",
        "registers-0 ask-other-1=.s.. ask-other-2 ends=xxx. ends=xxx. ask-other-3=xxxx refused-other-3=xxxx",
    ],
)
def test_what_tasks_and_slots_hear(registry: SlotRegistry, peers: list[Peer], steps: str) -> None:
    for step in steps.split():
        what, _, expected = step.partition("=")
        action, *which = what.split("-")
        slot, peer = OTHER if "other" in which else SLOT, peers[int(which[-1]) if which else 0]
        match action:
            case "ask":
                registry.acquire(slot, peer.theirs)
            case "registers" | "refused":
                assert register(registry, peer, slot) == (action == "registers")
            case "leaves":
                registry.task_left(slot, peer.theirs)
            case "ready":
                registry.ready(slot, ADDRESS)
            case "fails":
                registry.failed(slot, BROKEN)
            case "ends":
                registry.end()
        assert "".join(LETTERS[type(each)] for each in heard(peers)) == (expected or "...."), step


def test_the_first_error_of_a_slot_is_the_cause(registry: SlotRegistry, peers: list[Peer]) -> None:
    registry.acquire(SLOT, peers[0].theirs)
    for error in (BROKEN, RuntimeFailure("a consequence")):
        registry.failed(SLOT, error)
    registry.acquire(SLOT, peers[1].theirs)
    assert str(peers[1].heard().error) == "broken"


def test_addresses_and_pids_are_of_slots_that_run(registry: SlotRegistry, peers: list[Peer]) -> None:
    register(registry, peers[0], SLOT, pid=11)
    register(registry, peers[1], OTHER, pid=12)
    assert registry.addresses() == {}
    assert registry.pids() == {SLOT: 11, OTHER: 12}
    registry.ready(SLOT, ADDRESS)
    registry.ready(OTHER, ADDRESS)
    registry.failed(SLOT, BROKEN)
    assert registry.addresses() == {OTHER: ADDRESS}
    assert registry.pids() == {OTHER: 12}


def test_messages_go_to_the_slot_and_to_nobody_where_there_is_none(
    registry: SlotRegistry, peers: list[Peer]
) -> None:
    registry.send(SLOT, AbortCheckpoint(1))
    register(registry, peers[0])
    peers[1].ours.close()
    register(registry, peers[1], OTHER)
    for slot in (SLOT, OTHER):
        registry.send(slot, AbortCheckpoint(2))
    assert peers[0].heard() == AbortCheckpoint(2)


def test_close_asks_each_slot_and_waits_for_its_answer(registry: SlotRegistry, peers: list[Peer]) -> None:
    for peer, slot in zip(peers, (SLOT, OTHER), strict=False):
        register(registry, peer, slot)
    closing = in_thread(lambda: registry.close(PATIENCE_S))
    assert receive(peers[0].ours) == receive(peers[1].ours) == CloseSlot()
    registry.slot_closed(SLOT)
    assert closing.empty()
    registry.slot_closed(OTHER)
    assert outcome(closing) is None
    assert heard(peers[:2]) == ["cut off"] * 2


pytestmark = pytest.mark.timeout(90)

#: So long that a test that waits for it fails.
LATE = HeartbeatSettings(interval_ms=100, timeout_ms=600_000)
SOON = HeartbeatSettings(interval_ms=100, timeout_ms=2_000)


# --- a driver that dies or stops ---------------------------------------------------------------------------


@attrs.frozen
class OtherDriver:
    """A driver in a process of its own, and its slot."""

    process: subprocess.Popen[bytes]
    slot_fd: int
    said: dict[str, Any]

    def feed(self) -> Any:
        """Feed its slot one record, as a task does."""
        slot, secret = SlotId(**self.said["slot"]), bytes.fromhex(self.said["secret"])
        frames = frames_for([("a", 0)])[0]
        begin = BeginEpoch(0, 1, None)
        return list(run_epoch(Address(**self.said["address"]), secret, slot, begin, frames))

    def end(self) -> None:
        for pid in (self.said["child"], self.said["pid"], self.process.pid):
            if pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.slot_fd)


@contextmanager
def other_driver(heartbeat: HeartbeatSettings, forks: str = "none", told: str = "") -> Iterator[OtherDriver]:
    program = Path(__file__).parents[1] / "support" / "driver_program.py"
    settings = [str(heartbeat.interval_ms), str(heartbeat.timeout_ms)]
    process = subprocess.Popen([sys.executable, program, forks, *settings, told], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as output:
        said = json.loads(output.readline())
    made = OtherDriver(process, os.pidfd_open(said["pid"]), said)
    try:
        yield made
    finally:
        made.end()


def test_what_the_driver_forks_does_not_hold_its_sockets() -> None:
    with other_driver(LATE, forks="python") as driver:
        driver.process.kill()
        wait_for_exit(driver.slot_fd)


def test_a_driver_that_is_killed_while_a_child_holds_its_sockets_ends_its_slots() -> None:
    with other_driver(SOON, forks="c") as driver:
        driver.process.kill()
        driver.process.wait()
        wait_for_exit(driver.slot_fd)


def test_a_driver_that_is_stopped_ends_its_slots() -> None:
    with other_driver(SOON) as driver:
        driver.process.send_signal(signal.SIGSTOP)
        wait_for_exit(driver.slot_fd)


@pytest.mark.parametrize("forks", ["none", "c"])
def test_a_function_that_keeps_the_interpreter_lock_does_not_keep_the_slot_alive(
    tmp_path: Path, forks: str
) -> None:
    told = tmp_path / "pipe"
    os.mkfifo(told)
    with other_driver(SOON, forks=forks, told=str(told)) as driver:
        feeding = in_thread(driver.feed)
        with told.open() as pipe:
            assert pipe.read() == "now\n"
        driver.process.kill()
        wait_for_exit(driver.slot_fd)
        assert isinstance(outcome(feeding), SlotLostError)


# --- a slot that dies or stops -----------------------------------------------------------------------------


@pytest.fixture
def beating(driver: Driver) -> Iterator[Driver]:
    """A driver whose heartbeats come often, and whose timeout is short."""
    yield from with_heartbeat(driver, SOON)


def with_heartbeat(driver: Driver, heartbeat: HeartbeatSettings) -> Iterator[Driver]:
    first, driver.control = (
        driver.control,
        ControlServer(Endpoint(), driver.secret, driver.events, driver.of, heartbeat),
    )
    first.close()
    driver.registry = driver.control.new_attempt(0)
    driver.link = attrs.evolve(driver.link, address=driver.control.address)
    yield driver


def test_a_slot_that_is_stopped_is_lost_and_does_not_come_back(beating: Driver) -> None:
    slot = beating.start_slot(Count())
    os.kill(slot.pid, signal.SIGSTOP)
    lost = next_event(beating.events, SlotLost)
    assert lost.slot == SLOT
    assert isinstance(lost.error, SlotLostError), "by the driver's clock or by its own, whichever is first"
    wait_for_exit(slot.process_fd)


def test_a_task_that_waits_for_a_slot_that_is_stopped_is_told(beating: Driver) -> None:
    beating.deployments[SLOT] = deployment(Count())
    acted = ActedSlot(beating.control.address, beating.secret)
    acted.deployed()
    waiting = in_thread(lambda: beating.link.acquire_slot(SLOT))
    error = outcome(waiting)
    assert isinstance(error, SlotLostError)
    assert "has not answered" in str(error)
    assert not beating.registry.addresses()


def test_a_process_that_is_stopped_before_it_is_connected_is_given_up_and_killed(
    beating: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()

    def start(command: list[str], **settings: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["sleep", "1000"], **settings)
        process.send_signal(signal.SIGSTOP)
        started.put(process)
        return process

    now_s = [0.0]
    beating.registry._now_s = lambda: now_s[0]
    processes = SimpleNamespace(Popen=start, PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT)
    monkeypatch.setattr(slot_client, "subprocess", processes)
    starting = in_thread(lambda: beating.link.acquire_slot(SLOT))
    process = started.get(timeout=PATIENCE_S)
    now_s[0] = 60.0
    assert "count-1[0] has not connected since its start" in str(outcome(starting))
    assert next_event(beating.events, SlotLost).slot == SLOT
    assert process.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_slot_that_answers_lives_though_it_keeps_the_interpreter_lock_for_a_while(beating: Driver) -> None:
    slot = beating.start_slot(BacktrackAWhile())
    for epoch in range(1, 4):
        assert slot.feed(epoch, [("a", epoch)])[0] == [("a", epoch)]
    assert not any(isinstance(beating.events.get_nowait(), SlotLost) for _ in range(beating.events.qsize()))


def test_what_a_slot_forks_does_not_hold_its_connections(driver: Driver) -> None:
    slot = driver.start_slot(ForkAndStay())
    (child,) = slot.feed(1, [("a", 0)])[0]
    try:
        os.kill(slot.pid, signal.SIGKILL)
        event = next_event(driver.events, SlotLost)
        assert "died" in str(event.error)
    finally:
        os.kill(child, signal.SIGKILL)


# --- who is asked, and who answers -------------------------------------------------------------------------


def test_a_slot_answers_each_heartbeat(driver: Driver) -> None:
    for beating in with_heartbeat(driver, LATE):
        beating.deployments[SLOT] = deployment(Count())
        acted = ActedSlot(beating.control.address, beating.secret)
        acted.deployed()
        for _ in range(3):
            assert receive(acted.connection) == Heartbeat()
            acted.connection.send(Heartbeat())


def test_the_registry_gives_up_who_was_silent_and_nobody_else(driver: Driver) -> None:
    """The clock is the test's; other threads only carry messages."""
    now = [0.0]
    driver.registry._now_s = lambda: now[0]
    slots = [SLOT, SlotId("count-1", 1)]
    for slot in slots:
        driver.deployments[slot] = deployment(Count(), slot.subtask, 2)
    silent, talkative = (ActedSlot(driver.control.address, driver.secret, slot) for slot in slots)
    for acted in (silent, talkative):
        acted.deployed()
        acted.ready()
        driver.link.acquire_slot(acted.slot_id)  # returns when the driver has heard of it
    now[0] = 49.9
    assert driver.registry.beat(50.0) == []
    for acted in (silent, talkative):
        assert receive(acted.connection) == Heartbeat()
    driver.registry.heard(slots[1])
    now[0] = 50.0
    assert driver.registry.beat(50.0) == [slots[0]]
    assert receive(talkative.connection) == Heartbeat()


def test_a_slot_whose_buffers_are_full_holds_nobody_up(driver: Driver) -> None:
    driver.deployments[SLOT] = deployment(Count())
    acted = ActedSlot(driver.control.address, driver.secret)
    acted.deployed()
    filling = in_thread(lambda: driver.registry.send(SLOT, bytes(100_000_000)))
    while driver.registry._lock.acquire(blocking=False):  # until somebody is sending
        driver.registry._lock.release()
    driver.registry._slots[SLOT].connection.try_send(Heartbeat())  # type: ignore[union-attr]
    acted.connection.shut_down()
    assert outcome(filling) is None


# --- settings ----------------------------------------------------------------------------------------------


def test_the_defaults_are_flinks() -> None:
    assert HeartbeatSettings() == HeartbeatSettings(interval_ms=10_000, timeout_ms=50_000)


@pytest.mark.parametrize(("interval_ms", "timeout_ms"), [(0, 1), (-1, 5), (10, 9)])
def test_an_interval_longer_than_the_timeout_is_refused(interval_ms: int, timeout_ms: int) -> None:
    with pytest.raises(ConfigurationError, match=r"heartbeat\.interval is .* ms and heartbeat\.timeout"):
        HeartbeatSettings(interval_ms, timeout_ms)
