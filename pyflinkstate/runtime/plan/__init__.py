"""The plan of a job: nodes, the edges between them, and how records are distributed over subtasks."""

from pyflinkstate.runtime.plan.chained import (
    ASYNC,
    CHECK,
    WATERMARKS,
    AlignedSource,
    ChainedOperator,
    KeptTimestamp,
    OutputCheck,
)
from pyflinkstate.runtime.plan.exchanges import Exchange
from pyflinkstate.runtime.plan.job_plan import (
    Branch,
    Head,
    JobPlan,
    SettledOperator,
    Stage,
    functions_of,
    make_plan,
)
from pyflinkstate.runtime.plan.nodes import (
    ChainNode,
    Input,
    Node,
    PartitionNode,
    SideOutputNode,
    SinkNode,
    SourceNode,
    StatefulNode,
    UnionNode,
    stateful_node,
)
from pyflinkstate.runtime.plan.partitioners import Sender, Spread, first_only, rebalance, rescale, shuffle
from pyflinkstate.runtime.plan.partitioning import Partitioning
from pyflinkstate.runtime.plan.walk import new_assigner, upstream_of

__all__ = [
    "ASYNC",
    "CHECK",
    "WATERMARKS",
    "AlignedSource",
    "Branch",
    "ChainNode",
    "ChainedOperator",
    "Exchange",
    "Head",
    "Input",
    "JobPlan",
    "KeptTimestamp",
    "Node",
    "OutputCheck",
    "PartitionNode",
    "Partitioning",
    "Sender",
    "SettledOperator",
    "SideOutputNode",
    "SinkNode",
    "SourceNode",
    "Spread",
    "Stage",
    "StatefulNode",
    "UnionNode",
    "first_only",
    "functions_of",
    "make_plan",
    "new_assigner",
    "rebalance",
    "rescale",
    "shuffle",
    "stateful_node",
    "upstream_of",
]
