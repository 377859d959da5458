"""The options of the Spark data source, and which keys its filters name. No Spark runs here."""

import json

import pytest
from backend_support import make_backend, state_of, take_snapshot
from pyspark.sql.datasource import EqualNullSafe, EqualTo, GreaterThan, In, Not
from pyspark.sql.types import DoubleType, FloatType, IntegerType, StructField, StructType
from read_support import JOB_ID, UID, operator_of, write, write_checkpoint

from pyflinkstate.api import Duration, StateTtlConfig, Types, ValueStateDescriptor
from pyflinkstate.backends.format import OperatorSubtaskState
from pyflinkstate.errors import (
    CheckpointNotFoundError,
    ConfigurationError,
    UnknownOperatorError,
    UnknownStateError,
)
from pyflinkstate.state_access.spark import CheckpointDataSource, narrowed
from pyflinkstate.state_access.spark_query import query_of

KEY = ("key",)
TYPES = {"double": DoubleType(), "float": FloatType(), "int": IntegerType()}


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path, {f"k{n}": n for n in range(20)})


def asked(folder, **options):
    return query_of({"path": str(folder), **options})


class TestOptions:
    def test_what_is_read(self, folder):
        assert asked(folder).what == "keyed"
        assert asked(folder, state="count").table().schema.names == ["key", "value"]
        assert asked(folder, what="keyed", states="count").table().schema.names == ["key", "count"]
        assert asked(folder, what="keyed", states='["count"]').arguments == {"states": ["count"]}
        assert "timestamp_ms" in asked(folder, what="timers").table().schema.names

    def test_names_may_be_in_camel_case(self, folder):
        made = asked(folder, WithExpired="TRUE", allowpickle="false", timeToLive='{"count": 1}')
        assert made.arguments["with_expired"] is True
        assert made.arguments["allow_pickle"] is False
        assert list(made.arguments["time_to_live"]) == ["count"]

    def test_the_newest_checkpoint_and_the_time_are_found_once(self, tmp_path, folder):
        made = asked(tmp_path / JOB_ID)
        write(tmp_path, {"k1": 100}, 2)
        assert len(list(made.table().rows())) == 20
        assert made.checkpoint.clock() == made.checkpoint.clock()
        assert asked(folder, now_ms="7").checkpoint.clock() == 7

    def test_what_has_expired(self, tmp_path):
        backend = make_backend(Types.STRING(), clock=lambda: 1_000)
        descriptor = ValueStateDescriptor("count", Types.LONG())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_millis(100)).build())
        state_of(backend, descriptor, "a").update(1)
        states = [OperatorSubtaskState(take_snapshot(backend))]
        folder = write_checkpoint(tmp_path, [operator_of(states)])

        def count(**options):
            return sum(1 for _ in asked(folder, state="count", **options).table().rows())

        assert count(now_ms="1099") == 1
        assert count(now_ms="1100") == 0
        assert count() == 0
        assert count(with_expired="true") == 1
        assert count(now_ms="1100", time_to_live='{"count": 101}') == 1

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"ud": UID}, "no option 'ud'; there are 'uid', "),
            (
                {"what": "everything"},
                "one of keyed, entries, windows, timers, operator_state, not 'everything'",
            ),
            ({"what": "entries"}, "what='entries' needs option 'state'"),
            (
                {"what": "timers", "state": "count"},
                "'state' does not go with what='timers', which takes path",
            ),
            ({"with_expired": "yes"}, "'with_expired' cannot be 'yes': it is true or false"),
            ({"time_to_live": "1 h"}, "'time_to_live' cannot be '1 h'"),
            ({"time_to_live": json.dumps({"count": "1 h"})}, "takes a whole number, not '1 h'"),
            ({"time_to_live": "[]"}, "'time_to_live' cannot be"),
            ({"states": "[1]"}, "'states' cannot be"),
            ({"partitions": "many"}, "'partitions' cannot be 'many'"),
        ],
        ids=lambda value: None if isinstance(value, str) else ",".join(value.values()),
    )
    def test_bad_ones(self, folder, options, message):
        with pytest.raises(ConfigurationError) as raised:
            asked(folder, **options)
        assert message in raised.value.message

    def test_no_path(self):
        with pytest.raises(ConfigurationError, match=r"name a checkpoint: \.load\(path\)"):
            query_of({"uid": UID})

    @pytest.mark.parametrize(
        ("error", "message", "options"),
        [
            (CheckpointNotFoundError, "no completed checkpoint", {"path": "nothing"}),
            (UnknownOperatorError, "it has 'op'", {"uid": "other"}),
            (UnknownStateError, "it has 'count'", {"state": "cuont"}),
        ],
    )
    def test_what_is_not_there_is_found_at_once(self, folder, error, message, options):
        with pytest.raises(error, match=message):
            asked(folder, **options)


class TestFilters:
    @pytest.mark.parametrize(
        ("filters", "keys"),
        [
            ([EqualTo(KEY, "k1")], ("k1",)),
            ([EqualNullSafe(KEY, "k1")], ("k1",)),
            ([In(KEY, ("k1", "k2", None))], ("k1", "k2")),
            ([In(KEY, ("k1", "k2")), In(KEY, ("k2", "k3"))], ("k2",)),
            ([EqualTo(KEY, "k1"), EqualTo(KEY, "k2")], ()),
            ([EqualTo(("count",), 1), GreaterThan(KEY, "a"), Not(EqualTo(KEY, "k1"))], None),
            ([EqualTo(KEY, 7)], None),
        ],
    )
    def test_on_texts(self, folder, filters, keys):
        assert narrowed(asked(folder), filters).keys == keys

    def test_the_table_has_these_keys_only(self, folder):
        made = narrowed(asked(folder, partitions="128"), [In(KEY, ("k1", "none"))])
        assert [row["key"] for part in made.parts() for row in part.rows()] == ["k1"]
        assert len(made.parts()) <= 2

    def test_on_numbers_that_are_written_as_texts(self, tmp_path):
        folder = write(tmp_path, {2**70: 1}, key_type=Types.BIG_INT())
        assert narrowed(asked(folder), [EqualTo(KEY, str(2**70))]).keys == (2**70,)
        assert narrowed(asked(folder), [EqualTo(KEY, "many")]).keys is None

    def test_on_all_fields_of_a_tuple(self, tmp_path):
        folder = write(tmp_path, {("a", 1): 1}, key_type=Types.TUPLE([Types.STRING(), Types.LONG()]))
        fields = [EqualTo(("key", "f0"), "a"), EqualTo(("key", "f1"), 1)]
        assert narrowed(asked(folder), fields).keys == (("a", 1),)
        assert narrowed(asked(folder), fields[:1]).keys is None

    @pytest.mark.parametrize(
        ("schema", "keys"), [("key double", (0.5,)), ("key float", None), ("count int", None)]
    )
    def test_on_a_column_that_the_user_has_given_another_type(self, tmp_path, schema, keys):
        folder = write(tmp_path, {0.5: 1}, key_type=Types.DOUBLE())
        source = CheckpointDataSource({"path": folder})
        columns = [part.split() for part in schema.split(",")]
        reader = source.reader(StructType([StructField(name, TYPES[kind]) for name, kind in columns]))
        assert list(reader.pushFilters(half := [EqualTo(KEY, 0.5)])) == half
        assert reader.query.keys == keys

    def test_on_pickled_keys_only_where_these_are_loaded(self, tmp_path):
        folder = write(tmp_path, {"a": 1}, key_type=Types.PICKLED_BYTE_ARRAY())
        assert narrowed(asked(folder), [EqualTo(KEY, b"...")]).keys is None
        assert narrowed(asked(folder, allow_pickle="true"), [EqualTo(KEY, "a")]).keys == ("a",)
        assert narrowed(asked(folder, allow_pickle="true"), [EqualTo(KEY, ["a"])]).keys is None
