"""PyFlink's ``pyflink.datastream.slot_sharing_group``."""

from pyflinkstate.api import MemorySize as MemorySize, SlotSharingGroup as SlotSharingGroup
