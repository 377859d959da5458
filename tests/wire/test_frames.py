"""Frames and the router: every record reaches the subtask that owns its key, in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from support_runtime import PACKAGE, PICKLED, raising
from tiers import cases

from pyflinkstate import Instant, Row, TypeInformation, Types
from pyflinkstate.backends.keys import KeyHasher, key_group_range
from pyflinkstate.errors import BadRecordError, InvalidKeyError, UserFunctionError
from pyflinkstate.runtime.tasks import router as router_module
from pyflinkstate.runtime.tasks.router import MAX_PARTS, Router
from pyflinkstate.runtime.wire import FrameKey, InputFrame, ValuesFrame, decode_values, frames

Routed = list[tuple[FrameKey, InputFrame]]


@pytest.fixture(autouse=True)
def forgotten_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin each test with no key remembered, and with small batches."""
    monkeypatch.setattr(router_module, "_REMEMBERED", {})
    monkeypatch.setattr(frames, "RECORDS_PER_FRAME", 1)


def itself(record: Any) -> Any:
    return record


def first(record: Any) -> Any:
    return record[0]


def route(
    records: Iterable[Any],
    select_key: Callable[[Any], Any] = itself,
    key_type: TypeInformation = PICKLED,
    parallelism: int = 1,
    max_parallelism: int = 128,
    partition: int = 0,
) -> Routed:
    """Return the frames of one partition, decoded."""
    router = Router("count", select_key, key_type, parallelism, max_parallelism)
    return [(key, InputFrame.decode(data)) for key, data in router.route(partition, records)]


def groups_of(frame: InputFrame) -> list[int]:
    return np.frombuffer(frame.key_groups, dtype="<u2").tolist()


def test_a_keyed_frame_comes_back_as_it_was_encoded() -> None:
    frame = InputFrame(b"\x00\x00\xff\x7f", ("a", (1, None)), [{"n": 1}, [b"\x00"]])
    assert InputFrame.decode(frame.encode()) == frame


@pytest.mark.parametrize("values", [[], [None], list(range(10_000)), ("a", {"b": [1.5]})])
def test_a_frame_of_values_comes_back_as_it_was_encoded(values: Any) -> None:
    assert decode_values(ValuesFrame(values).encode()) == list(values)


SPREADS = cases(
    [(1, 128), (2, 128), (3, 128), (7, 128), (128, 128), (3, 32768), (7, 7)],
    quick=[(1, 128), (3, 128), (3, 32768), (7, 7)],
)


@pytest.mark.parametrize(("parallelism", "max_parallelism"), SPREADS)
@pytest.mark.parametrize("key_type", [PICKLED, Types.LONG()], ids=str)
def test_every_record_arrives_once_in_the_subtask_that_owns_its_key(
    key_type: TypeInformation, parallelism: int, max_parallelism: int
) -> None:
    count = 3 * 1024 * parallelism + 17 if parallelism < 128 else 140_000
    records = [(n * n % 501, n) for n in range(count)]
    routed = route(records, first, key_type, parallelism, max_parallelism)

    assert sorted(value for _, frame in routed for value in frame.values) == sorted(records)
    for (subtask, *_), frame in routed:
        owned = key_group_range(max_parallelism, parallelism, subtask)
        assert all(group in owned for group in groups_of(frame))
        assert list(frame.keys) == [value[0] for value in frame.values]
    hasher = KeyHasher(key_type)
    for _, frame in routed[:3]:
        assert groups_of(frame) == hasher.key_groups(list(frame.keys), max_parallelism)


def test_frame_keys_sort_back_to_the_order_of_the_input() -> None:
    parts = [list(range(5_000)), list(range(5_000, 5_100)), list(range(5_100, 9_000))]
    routed = [item for number in (2, 0, 1) for item in reversed(route(parts[number], partition=number))]
    values = [value for _, frame in sorted(routed, key=lambda item: item[0]) for value in frame.values]
    assert values == list(range(9_000))


def test_frame_keys_are_those_of_subtask_partition_and_batch() -> None:
    routed = route(range(6 * 1024), parallelism=2, partition=5)
    assert sorted(key for key, _ in routed) == [
        (subtask, 1, 0, 5, number * MAX_PARTS) for subtask in range(2) for number in range(3)
    ]


def test_no_records_make_no_frames_and_a_record_alone_in_its_batch_is_routed() -> None:
    assert route([], parallelism=7) == []
    (((subtask, *_), frame),) = route(["a"], parallelism=128)
    assert (subtask, list(frame.keys), list(frame.values)) == (81, ["a"], ["a"])


ONES = {"of numpy": [1, 1.0, True, np.int64(1), np.float32(1)], "exact": [1, Decimal(1), Fraction(1), 1.0]}


@pytest.mark.parametrize("numbers", [*ONES.values(), *(ones[::-1] for ones in ONES.values())])
def test_equal_keys_meet_without_a_declared_type(numbers: list[Any]) -> None:
    for keys, group in ((numbers, 86), ([(number, "a") for number in numbers], None)):
        ((_, frame),) = route(keys, parallelism=128)
        assert len(frame.keys) == len(numbers)
        assert len(set(groups_of(frame))) == 1
        assert group in (None, *groups_of(frame))


def test_rows_meet_whatever_the_order_of_their_fields() -> None:
    keys = [Row(a=1, b="x"), Row(b="x", a=1.0), Row("b", "a")("x", True)]
    ((_, frame),) = route(keys, parallelism=128)
    assert len(set(groups_of(frame))) == 1


scalars = st.integers() | st.floats(allow_nan=False) | st.booleans() | st.text() | st.binary()


@given(st.lists(scalars | st.tuples(scalars, scalars), max_size=50), st.sampled_from([2, 7, 128]))
def test_equal_keys_meet_whatever_they_are(keys: list[Any], parallelism: int) -> None:
    router_module._REMEMBERED.clear()
    placed: dict[Any, int] = {}
    routed = route(keys, parallelism=parallelism)
    for (subtask, *_), frame in routed:
        for key in frame.keys:
            assert placed.setdefault(key, subtask) == subtask
    assert sum(len(frame.keys) for _, frame in routed) == len(keys)


CONVERTED = [
    (Types.LONG(), np.int64(7), 7),
    (Types.INT(), np.uint8(7), 7),
    (Types.DOUBLE(), 7, 7.0),
    (Types.STRING(), np.str_("a"), "a"),
    (Types.FLOAT(), 0.1, float(np.float32(0.1))),
    (Types.TUPLE([Types.LONG(), Types.STRING()]), (np.int32(7), "a"), (7, "a")),
    (Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()]), Row(b="x", a=np.int32(7)), Row(a=7, b="x")),
    (Types.ROW([Types.INSTANT()]), (Instant(1, 2),), Row(f0=Instant(1, 2))),
]


@pytest.mark.parametrize(("key_type", "given_key", "kept"), CONVERTED, ids=str)
@pytest.mark.parametrize("before", [True, False], ids=["after its equal", "alone"])
def test_keys_become_what_their_type_keeps(
    key_type: TypeInformation, given_key: Any, kept: Any, before: bool
) -> None:
    ((_, frame),) = route([kept, given_key] if before else [given_key], key_type=key_type)
    assert frame.keys[-1] == kept
    assert type(frame.keys[-1]) is type(kept)
    assert repr(frame.keys[-1]) == repr(kept)


BAD_KEYS = [
    (PICKLED, None),
    (PICKLED, float("nan")),
    (PICKLED, [1]),
    (PICKLED, ("a", {})),
    (PICKLED, object()),
    (PICKLED, frozenset({1})),
    (Types.STRING(), None),
    (Types.STRING(), 5),
    (Types.STRING(), []),
    (Types.STRING(), "\ud800"),
    (Types.LONG(), None),
    (Types.LONG(), "5"),
    (Types.LONG(), True),
    (Types.LONG(), 2**63),
    (Types.DOUBLE(), float("nan")),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), bytearray(b"a")),
    (Types.TUPLE([Types.LONG(), Types.STRING()]), ("a", 1)),
    (Types.TUPLE([Types.LONG()]), (1, 2)),
]
GOOD_KEYS = {"LONG": 5, "DOUBLE": 0.5, "PRIMITIVE_ARRAY(BYTE)": b"a", "TUPLE(LONG)": (5,)}


@pytest.mark.parametrize(("key_type", "bad"), BAD_KEYS, ids=str)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_bad_key_is_refused_with_its_operator_and_record(
    key_type: TypeInformation, bad: Any, parallelism: int
) -> None:
    good = GOOD_KEYS.get(str(key_type), (5, "a") if "TUPLE" in str(key_type) else "a")
    records = [(good, n) for n in range(4_000)]
    records[2_222] = (bad, 2_222)
    with pytest.raises(InvalidKeyError) as caught:
        route(records, first, key_type, parallelism)
    context = caught.value.context
    assert (context["operator"], context["record"]) == ("count", repr(records[2_222]))
    assert "operator 'count'" in str(caught.value)
    assert repr(records[2_222]) in str(caught.value)


def test_frames_before_a_bad_key_have_been_given_out() -> None:
    router = Router("count", itself, PICKLED, 1, 128)
    routed = router.route(0, [*range(1024), None])
    assert next(routed)[0] == (0, 1, 0, 0, 0)
    with pytest.raises(InvalidKeyError, match="record None"):
        next(routed)


def test_a_key_selector_that_raises_is_reported_with_its_record() -> None:
    records: list[dict[str, int]] = [{"id": n} for n in range(3_000)]
    records[1_500] = {"no": 1_500}
    with pytest.raises(UserFunctionError, match=r"^KeyError: 'id'") as caught:
        route(records, lambda record: record["id"])
    for part in ("operator 'count'", "{'no': 1500}", 'lambda record: record["id"]'):
        assert part in str(caught.value)
    assert PACKAGE not in str(caught.value)


@pytest.mark.parametrize(
    ("raised", "error", "message"),
    [
        (StopIteration(), UserFunctionError, "StopIteration"),  # it must not end the batch
        (SystemExit(3), UserFunctionError, r"SystemExit: 3\s+in operator 'count', record 7"),
        (KeyboardInterrupt(), KeyboardInterrupt, ""),  # it ends the task
    ],
    ids=repr,
)
def test_what_else_a_key_selector_may_raise(
    raised: BaseException, error: type[BaseException], message: str
) -> None:
    with pytest.raises(error, match=message or None):
        route([7, 8], raising(raised))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_what_cannot_be_pickled_is_a_bad_record(parallelism: int) -> None:
    with pytest.raises(BadRecordError, match="must be picklable"):
        route([("a", threading.Lock())], first, parallelism=parallelism)
    with pytest.raises(BadRecordError, match="must be picklable"):
        ValuesFrame([threading.Lock()]).encode()


@pytest.mark.parametrize("key_type", [PICKLED, Types.LONG(), Types.STRING()], ids=str)
def test_the_memory_of_keys_is_bounded_and_routing_stays_right(
    key_type: TypeInformation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_module, "REMEMBERED_KEYS", 1_500)
    keys: list[Any] = [n % 4_000 for n in range(12_000)]
    if key_type == Types.STRING():
        keys = list(map(str, keys))
    router = Router("count", itself, key_type, 1, 128)
    placed: dict[Any, int] = {}
    sizes = []
    for _, data in router.route(0, keys):
        frame = InputFrame.decode(data)
        for key, group in zip(frame.keys, groups_of(frame), strict=True):
            assert placed.setdefault(key, group) == group
        sizes.append(len(router_module._REMEMBERED[key_type, 128]))
    assert max(sizes) <= 1_500
    assert len(placed) == 4_000


def test_memories_of_other_key_types_and_max_parallelisms_are_apart() -> None:
    ((_, untyped),) = route([True, 1], key_type=PICKLED)
    ((_, typed),) = route([True], key_type=Types.BOOLEAN())
    ((_, fewer),) = route([1], key_type=PICKLED, max_parallelism=7)
    assert groups_of(untyped) == [86, 86]
    assert groups_of(typed) == [77]  # Boolean.hashCode, as Flink 2.3.0 printed it
    assert groups_of(fewer) == [68075478 % 7]
