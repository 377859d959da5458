"""PyFlink's ``pyflink.datastream.slot_sharing_group``."""

from __future__ import annotations

from pyflinkstate.api.slot_sharing_group import MemorySize, SlotSharingGroup

__all__ = ["MemorySize", "SlotSharingGroup"]
