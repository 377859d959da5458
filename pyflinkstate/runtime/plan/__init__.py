"""The plan of a job: nodes, the edges between them, and how records are distributed over subtasks."""

from pyflinkstate.runtime.plan.edges import (
    Exchange as Exchange,
    new_assigner as new_assigner,
    upstream_of as upstream_of,
)
from pyflinkstate.runtime.plan.job_plan import (
    Branch as Branch,
    Head as Head,
    JobPlan as JobPlan,
    SettledOperator as SettledOperator,
    Stage as Stage,
    functions_of as functions_of,
    make_plan as make_plan,
)
from pyflinkstate.runtime.plan.nodes import (
    ASYNC as ASYNC,
    CHECK as CHECK,
    WATERMARKS as WATERMARKS,
    AlignedSource as AlignedSource,
    ChainedOperator as ChainedOperator,
    ChainNode as ChainNode,
    Input as Input,
    KeptTimestamp as KeptTimestamp,
    Node as Node,
    OutputCheck as OutputCheck,
    Partitioning as Partitioning,
    PartitionNode as PartitionNode,
    Sender as Sender,
    SideOutputNode as SideOutputNode,
    SinkNode as SinkNode,
    SourceNode as SourceNode,
    Spread as Spread,
    StatefulNode as StatefulNode,
    UnionNode as UnionNode,
    first_only as first_only,
    rebalance as rebalance,
    rescale as rescale,
    shuffle as shuffle,
    stateful_node as stateful_node,
)
