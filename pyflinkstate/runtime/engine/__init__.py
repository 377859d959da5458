"""The parts of an epoch, and the interface to the engine that runs it."""

from pyflinkstate.runtime.engine.epoch_graph import EpochGraph, Task
from pyflinkstate.runtime.engine.epochs import EpochEnded, EpochRequest, EpochRunner, SlotsRequest
from pyflinkstate.runtime.engine.shipping import CodeBook

__all__ = ["CodeBook", "EpochEnded", "EpochGraph", "EpochRequest", "EpochRunner", "SlotsRequest", "Task"]
