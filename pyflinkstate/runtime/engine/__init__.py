"""The parts of an epoch, and the interface to the engine that runs it."""

from pyflinkstate.runtime.engine.epoch_graph import EpochGraph, Task
from pyflinkstate.runtime.engine.epochs import CodeBook, EpochEnded, EpochRequest, EpochRunner, SlotsRequest

__all__ = ["CodeBook", "EpochEnded", "EpochGraph", "EpochRequest", "EpochRunner", "SlotsRequest", "Task"]
