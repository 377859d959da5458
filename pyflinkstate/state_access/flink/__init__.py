"""Savepoints of Flink, in and out: each becomes a savepoint of this project, and the other way round."""

from pyflinkstate.state_access.flink.arriving import (
    edit_flink_savepoint as edit_flink_savepoint,
    open_flink_savepoint as open_flink_savepoint,
)
from pyflinkstate.state_access.flink.leaving import (
    convert_savepoint as convert_savepoint,
    savepoint_rewriter as savepoint_rewriter,
    write_flink_savepoint as write_flink_savepoint,
)
from pyflinkstate.state_access.flink.opened import FlinkSavepoint as FlinkSavepoint
