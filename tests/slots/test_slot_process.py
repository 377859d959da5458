"""A slot's process as ``python -m`` starts it."""

import socket
import subprocess
import sys

from support_slots import SLOT, Driver

from pyflinkstate.runtime.slots.slot import SlotBootstrap
from pyflinkstate.runtime.tasks.slot_client import SLOT_MODULE
from pyflinkstate.runtime.wire import Address, SlotId


def test_its_main_module_is_not_loaded_already() -> None:
    # Python would say so in a RuntimeWarning, and have each of its classes twice.
    code = (
        f"import importlib.util, sys; assert importlib.util.find_spec({SLOT_MODULE!r}); "
        f"sys.exit({SLOT_MODULE!r} in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=300, check=False).returncode == 0


def test_a_slot_whose_driver_has_gone_says_so_in_one_line() -> None:
    # It was a traceback on the user's terminal, after the job's own last words.
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # not listening, and nobody else can take the port
        address = Address(*bound.getsockname())
        bootstrap = SlotBootstrap(address, b"secret", 1, SlotId("count", 0)).encode()
        command = [sys.executable, "-m", SLOT_MODULE]
        ended = subprocess.run(command, input=bootstrap, capture_output=True, timeout=300, check=False)
    (line,) = ended.stderr.decode().splitlines()
    assert ended.returncode == 1
    assert line.startswith(
        f"state slot count[0]: it ends, as its driver at 127.0.0.1:{address.port} does not answer: "
    )


def test_a_slot_that_cannot_listen_says_so(driver: Driver) -> None:
    """It ended without a word, as if its driver had gone, and with exit code 0."""
    code = (
        "from pyflinkstate.runtime.slots import slot\n"
        "def listen_on_tcp(host): raise OSError('no port is left')\n"
        "slot.listen_on_tcp = listen_on_tcp\n"
        "slot.main()"
    )
    bootstrap = SlotBootstrap(driver.control.address, driver.secret, 0, SLOT).encode()
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, input=bootstrap, capture_output=True, timeout=300, check=False)
    last = ended.stderr.decode().splitlines()[-1]
    assert last.endswith(f"state slot {SLOT} cannot listen on its host 127.0.0.1: no port is left")
    assert ended.returncode == 1
