"""Slots that the tests of jobs fork are processes as those that jobs start."""

from __future__ import annotations

import os
import sys

import slot_nursery
from slot_functions import Count
from support_slots import Driver

from pyflinkstate.runtime.tasks.slot_client import SLOT_MODULE


def test_a_forked_slot_has_a_session_of_its_own_and_runs_what_it_is_given(driver: Driver) -> None:
    slot = driver.start_slot(Count())
    assert slot.pid != os.getpid()
    assert os.getsid(slot.pid) == slot.pid
    records, _ = slot.feed(1, [("a", 1), ("a", 2)])
    assert records == [("a", 1), ("a", 2)]


def test_a_fork_that_fails_tells_why_and_with_which_code() -> None:
    command = [sys.executable, "-m", SLOT_MODULE, "nobody"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    streams = os.dup(1), os.dup(2)
    process = slot_nursery.Popen(
        command,
        stdin=slot_nursery.PIPE,
        stdout=slot_nursery.PIPE,
        stderr=slot_nursery.STDOUT,
        pass_fds=streams,
        start_new_session=True,
        env=env,
    )
    for stream in streams:
        os.close(stream)
    with process.stdin as stdin:
        stdin.write(b"this is no bootstrap")
    assert process.wait() == 1
    assert process.poll() == 1
    with process.stdout as stdout:
        assert b"JSONDecodeError" in stdout.read()
