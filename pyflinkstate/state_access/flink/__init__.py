"""Savepoints of Flink, in and out: each becomes a savepoint of this project, and the other way round."""

from pyflinkstate.state_access.flink.arriving import edit_flink_savepoint as edit_flink_savepoint
from pyflinkstate.state_access.flink.conversion import (
    convert_savepoint as convert_savepoint,
    open_flink_savepoint as open_flink_savepoint,
    savepoint_rewriter as savepoint_rewriter,
)
from pyflinkstate.state_access.flink.leaving import write_flink_savepoint as write_flink_savepoint
from pyflinkstate.state_access.flink.opened import FlinkSavepoint as FlinkSavepoint
