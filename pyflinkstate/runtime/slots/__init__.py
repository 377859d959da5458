"""State slots: processes that keep keyed state from epoch to epoch, and the driver's connections to them."""

from pyflinkstate.runtime.slots.control import Control, ControlServer, Endpoint, SlotLost, SlotRegistry
from pyflinkstate.runtime.slots.slot import SlotBootstrap

__all__ = ["Control", "ControlServer", "Endpoint", "SlotBootstrap", "SlotLost", "SlotRegistry"]
