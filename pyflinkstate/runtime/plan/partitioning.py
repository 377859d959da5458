"""How a plan distributes the records of an input over subtasks."""

from __future__ import annotations

import enum


class Partitioning(enum.Enum):
    """How the records of an input are distributed over subtasks."""

    #: By key group.
    KEY = "key"
    #: The records of a partition stay together.
    FORWARD = "forward"
    #: Every record goes to every subtask.
    BROADCAST = "broadcast"
    #: Records go to all subtasks in turn.
    REBALANCE = "rebalance"
    #: Records go in turn to the subtasks that belong to the partition.
    RESCALE = "rescale"
    #: Records go to random subtasks.
    SHUFFLE = "shuffle"
    #: All records go to the first subtask.
    GLOBAL = "global_"
    #: Every record goes to the subtask that comes with it: it is a pair of subtask and record.
    CUSTOM = "partition_custom"
