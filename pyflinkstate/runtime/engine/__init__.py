"""What an epoch is made of, and the seam to what runs it."""

from pyflinkstate.runtime.engine.epoch_graph import EpochGraph, Task
from pyflinkstate.runtime.engine.epochs import EpochEnded, EpochRequest, EpochRunner, SlotsRequest
from pyflinkstate.runtime.engine.shipping import CodeBook

__all__ = ["CodeBook", "EpochEnded", "EpochGraph", "EpochRequest", "EpochRunner", "SlotsRequest", "Task"]
