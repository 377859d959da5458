"""The watchdog of a slot's process: each test lets it end a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest
from support_runtime import PATIENCE_S

from pyflinkstate.runtime.slots.watchdog import KernelWatchdog, ThreadWatchdog, watchdog

pytestmark = pytest.mark.timeout(60)

BEGIN = """
import re, signal, sys, threading
from pyflinkstate.runtime.slots.watchdog import KernelWatchdog, ThreadWatchdog
dog = {kind}()
{then}
"""


def exit_code(kind: str, then: str) -> int:
    program = BEGIN.format(kind=kind, then=then)
    return subprocess.run([sys.executable, "-c", program], check=False, timeout=PATIENCE_S).returncode


@pytest.mark.parametrize("kind", ["KernelWatchdog", "ThreadWatchdog"])
def test_a_process_that_is_not_fed_ends(kind: str) -> None:
    assert exit_code(kind, "dog.feed(100); threading.Event().wait()") == -signal.SIGKILL


def test_also_when_no_thread_gets_the_interpreter_lock() -> None:
    forever = "dog.feed(100); re.match(r'(a+)+$', 'a' * 100 + 'b')"
    assert exit_code("KernelWatchdog", forever) == -signal.SIGKILL


def test_also_when_it_is_stopped() -> None:
    stopped = "dog.feed(300); signal.raise_signal(signal.SIGSTOP)"
    assert exit_code("KernelWatchdog", stopped) == -signal.SIGKILL


#: Waits for an alarm of the kernel that is later than a feeding of 2 s. It is held back until it is waited
#: for, as nobody would wake up for one that came before.
LATER = (
    "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM}); "
    "signal.setitimer(signal.ITIMER_REAL, 2.1); signal.sigwait({signal.SIGALRM})"
)


def test_one_that_is_fed_lives() -> None:
    """The last feeding counts: the first would have ended it before the alarm."""
    assert exit_code("KernelWatchdog", f"dog.feed(2_000); dog.feed(600_000); {LATER}; sys.exit(7)") == 7


def test_user_code_keeps_its_alarms() -> None:
    alarmed = (
        "import os\n"
        "rang, (woken, wakes) = [], os.pipe()\n"
        "os.set_blocking(wakes, False)\n"
        "signal.set_wakeup_fd(wakes)\n"
        "signal.signal(signal.SIGALRM, lambda *_: rang.append(1))\n"
        "dog.feed(600_000)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.05)\n"
        "os.read(woken, 1)\n"
        "sys.exit(len(rang) + 4)"
    )
    assert exit_code("KernelWatchdog", alarmed) == 5


def test_a_child_is_not_ended_with_it() -> None:
    forked = (
        "import os\n"
        "dog.feed(2_000)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        f"    {LATER}; os._exit(6)\n"
        "dog.feed(600_000)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert exit_code("KernelWatchdog", forked) == 6


def test_the_thread_ends_the_process_when_its_time_has_come() -> None:
    """Its clock is the test's, and its end an event."""
    now, ended = [0.0], threading.Event()
    dog = ThreadWatchdog(lambda: now[0], ended.set)
    dog.feed(50_000)
    now[0] = 10.0
    dog.feed(50_000)
    now[0] = 60.0
    with dog._fed:
        dog._fed.notify()
    assert ended.wait(PATIENCE_S)


def test_linux_has_the_kernels() -> None:
    if sys.platform == "linux":
        assert isinstance(watchdog(), KernelWatchdog)
