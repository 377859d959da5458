"""PyFlink's ``pyflink.datastream.slot_sharing_group``."""

from pyflinkstate.api.slot_sharing_group import MemorySize as MemorySize, SlotSharingGroup as SlotSharingGroup
