"""State slots: processes that keep keyed state from epoch to epoch, and the driver's connections to them."""

from pyflinkstate.runtime.slots.control import ControlServer, Endpoint, SlotLost, SlotRegistry
from pyflinkstate.runtime.slots.memory import lack_of_space
from pyflinkstate.runtime.slots.process import NEEDED, path_without_brought, put_on_path
from pyflinkstate.runtime.slots.slot import SlotBootstrap
from pyflinkstate.runtime.slots.slot_service import SlotHost, SlotService

__all__ = [
    "NEEDED",
    "ControlServer",
    "Endpoint",
    "SlotBootstrap",
    "SlotHost",
    "SlotLost",
    "SlotRegistry",
    "SlotService",
    "lack_of_space",
    "path_without_brought",
    "put_on_path",
]
