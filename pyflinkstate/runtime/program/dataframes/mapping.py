"""``keyed_map``: a plain function over the rows of each key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from pyflinkstate.api.descriptors import ValueStateDescriptor
from pyflinkstate.api.ttl import StateTtlConfig
from pyflinkstate.api.types import TypeInformation, Types
from pyflinkstate.api.values import SparkSchema
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.operators import KeyedMap, MapKey
from pyflinkstate.runtime.plan import Input
from pyflinkstate.runtime.program.dataframes.keys import KeyColumns, columns_of
from pyflinkstate.runtime.program.dataframes.options import JobKeywords, JobOptions, check_keywords
from pyflinkstate.runtime.program.dataframes.processing import process
from pyflinkstate.runtime.program.dataframes.steps import KeyedStep
from pyflinkstate.runtime.program.user_functions import check_function, name_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from typing_extensions import Unpack

    from pyflinkstate.runtime.program.data_stream import DataStream
    from pyflinkstate.runtime.program.keyed_stream import KeyedStream


@attrs.frozen(kw_only=True)
class _MapStep(KeyedStep):
    """A step whose function is the operator itself."""

    def processed(self, keyed: KeyedStream, initial: tuple[Input, ...]) -> DataStream:
        operator: KeyedMap = self.function  # type: ignore[assignment]
        name = name_of(operator.function, "keyed_map")
        return keyed.stateful((keyed.as_input(), *initial), operator, name, None)


def _initial_column(initial_state: DataFrame | None, key: KeyColumns) -> str | None:
    """Return the column that has the state of a key: the only one that does not belong to the key.

    Raises:
        ConfigurationError: there is none, or there are several.
    """
    if initial_state is None or not hasattr(initial_state, "isStreaming"):
        return None  # no initial state, or not a DataFrame: that error is raised later
    columns = initial_state.columns
    others = [name for name in columns if name not in columns_of(key)]
    if callable(key) or len(others) != 1:
        raise ConfigurationError(
            f"initial_state= of keyed_map() takes a DataFrame with the columns of the key, given by their "
            f"names, and one more, whose value becomes the state; its columns are {', '.join(columns)}"
        )
    return str(others[0])


def keyed_map(
    df: DataFrame,
    key: KeyColumns,
    function: MapKey,
    schema: SparkSchema,
    *,
    state_type: TypeInformation | None = None,
    state_ttl: StateTtlConfig | None = None,
    key_type: TypeInformation | None = None,
    **options: Unpack[JobKeywords],
) -> DataFrame:
    """Call ``function(key, rows, state)`` for each key of a DataFrame, and return what it yields.

    For a batch DataFrame it is called once for each key, with all rows of the key. For a streaming DataFrame
    it is called once for each key that has rows in a micro-batch, with these rows; ``state`` has what the
    calls before have left there. The rows of a batch are held in memory until all have come.

    Args:
        df: a batch or streaming DataFrame.
        key: the name of a column, several names, or a function of the row.
        function: called with the key, an iterator over Spark ``Row`` records, and a :class:`KeyState`;
            returns or yields rows of ``schema``, or returns None.
        schema: what ``createDataFrame`` takes, such as ``"user string, n long"``.
        state_type: the type of the value in ``state``, which is then checked and stored as columns. Default:
            any value, which is pickled.
        state_ttl: when a value expires.
        key_type: see :meth:`DataStream.key_by`.
        initial_state: a batch DataFrame with the columns of ``key``, which must be names then, and one more,
            whose value becomes the state of the key before the first row of ``df`` is read. There may be one
            row for each key. :func:`keyed_process` says when it is read.
        **options: as for :func:`keyed_process`: ``parallelism``, ``checkpoint_directory`` (required for a
            streaming DataFrame), ``restore_from``, ``on_failure``, ``listener``, ``trigger``,
            ``output_mode``, ``retention`` and ``job_name``.

    Raises:
        ConfigurationError: as for :func:`keyed_process`.
        RowError: a result does not fit ``schema``; for a streaming DataFrame it fails the job.
    """
    check_keywords("keyed_map()", options, JobKeywords, ["state_type", "state_ttl", "key_type"])
    check_function("keyed_map()", function, (), arguments=3)
    descriptor = ValueStateDescriptor("state", state_type or Types.PICKLED_BYTE_ARRAY())
    if state_ttl is not None:
        descriptor.enable_time_to_live(state_ttl)
    operator = KeyedMap(function, descriptor, _initial_column(options.get("initial_state"), key))
    step = _MapStep(key=key, function=operator, schema=schema, key_type=key_type)  # type: ignore[arg-type]
    (frame,) = process(df, [step], {}, JobOptions("keyed_map()", options))
    return frame
