"""State slots: processes that keep keyed state from epoch to epoch, and the driver's connections to them."""

from pyflinkstate.runtime.slots.control import (
    ControlServer as ControlServer,
    Endpoint as Endpoint,
    SlotLost as SlotLost,
    SlotRegistry as SlotRegistry,
)
from pyflinkstate.runtime.slots.inputs import (
    BARRIER as BARRIER,
    MARKER as MARKER,
    Host as Host,
    Inputs as Inputs,
    OpenChannel as OpenChannel,
    Visitor as Visitor,
)
from pyflinkstate.runtime.slots.memory import lack_of_space as lack_of_space, resident_bytes as resident_bytes
from pyflinkstate.runtime.slots.process import (
    NEEDED as NEEDED,
    path_without_brought as path_without_brought,
    put_on_path as put_on_path,
)
from pyflinkstate.runtime.slots.slot import SlotBootstrap as SlotBootstrap
from pyflinkstate.runtime.slots.slot_service import (
    Encode as Encode,
    Results as Results,
    SlotHost as SlotHost,
    SlotService as SlotService,
)
from pyflinkstate.runtime.slots.time_shares import TimeShares as TimeShares, Waits as Waits
