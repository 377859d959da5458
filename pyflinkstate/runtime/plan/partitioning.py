"""How the records of an input find their subtasks, as a plan says it."""

from __future__ import annotations

import enum


class Partitioning(enum.Enum):
    """How the records of an input find their subtasks."""

    #: By key group.
    KEY = "key"
    #: Those of a partition stay together.
    FORWARD = "forward"
    #: Each goes to every subtask.
    BROADCAST = "broadcast"
    #: One after the other to all subtasks.
    REBALANCE = "rebalance"
    #: One after the other to those subtasks that belong to the partition.
    RESCALE = "rescale"
    #: Each to any subtask.
    SHUFFLE = "shuffle"
    #: All to the first subtask.
    GLOBAL = "global_"
    #: Each to the subtask that comes with it: "records" are pairs of a subtask and the record.
    CUSTOM = "partition_custom"
