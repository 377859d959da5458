"""A driver in a process of its own, with one slot; ``test_control.py`` runs it, and kills or stops it.

``argv``: a way to fork a child that stays, heartbeat interval and timeout in ms, the pipe of the function.
Prints its slot as one line of JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading

import attrs
from slot_functions import BacktrackForEver
from support_slots import SLOT, Driver

from pyflinkstate.runtime.slots import ControlServer, Endpoint
from pyflinkstate.runtime.wire import HeartbeatSettings


def fork_as_python_does() -> int:
    child = os.fork()
    if child == 0:
        signal.pause()
    return child


def fork_behind_python() -> int:
    """Fork in C, so that nothing is closed in the child: it holds every socket."""
    library = ctypes.PyDLL(None)
    child: int = library.fork()
    if child == 0:
        library.pause()
    return child


FORKS = {"none": lambda: 0, "python": fork_as_python_does, "c": fork_behind_python}


def main() -> None:
    way, interval_ms, timeout_ms, told = sys.argv[1:]
    driver = Driver()
    driver.control.close()
    heartbeat = HeartbeatSettings(int(interval_ms), int(timeout_ms))
    driver.control = ControlServer(Endpoint(), driver.secret, driver.events, driver.of, heartbeat)
    driver.registry = driver.control.new_attempt(0)
    driver.link = attrs.evolve(driver.link, address=driver.control.address)
    slot = driver.start_slot(BacktrackForEver(told))
    child = FORKS[way]()
    told_of = {
        "pid": slot.pid,
        "child": child,
        "secret": driver.secret.hex(),
        "address": attrs.asdict(slot.address),
        "slot": attrs.asdict(SLOT),
    }
    print(json.dumps(told_of), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
