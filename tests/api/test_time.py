"""Lengths of time and moments: PyFlink's names, and what they come to in milliseconds."""

import datetime
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pyflinkstate.api import Duration, Instant, Time, milliseconds_of
from pyflinkstate.errors import ConfigurationError


@pytest.mark.parametrize(
    ("time", "milliseconds"),
    [
        (Time(7), 7),
        (Time.milliseconds(7), 7),
        (Time.seconds(7), 7_000),
        (Time.minutes(7), 420_000),
        (Time.hours(7), 25_200_000),
        (Time.days(7), 604_800_000),
        (Time.milliseconds(0), 0),
        (Time.seconds(-1), -1_000),
        (Time.milliseconds(2**63 - 1), 2**63 - 1),
    ],
    ids=str,
)
def test_a_time_is_whole_milliseconds(time, milliseconds):
    assert time.to_milliseconds() == milliseconds
    assert str(time) == f"{milliseconds} ms"


@pytest.mark.parametrize(
    ("duration", "milliseconds"),
    [
        (Duration.of_nanos(7_000_000), 7),
        (Duration.of_millis(7), 7),
        (Duration.of_seconds(7), 7_000),
        (Duration.of_minutes(7), 420_000),
        (Duration.of_hours(7), 25_200_000),
        (Duration.of_days(7), 604_800_000),
        (Duration.of_millis(2**63 - 1), 2**63 - 1),
        # Parts of a millisecond are dropped, as by ``java.time.Duration.toMillis``.
        (Duration.of_nanos(999_999), 0),
        (Duration.of_nanos(1_000_000), 1),
        (Duration.of_nanos(1_999_999), 1),
    ],
    ids=repr,
)
def test_a_duration_comes_to_milliseconds(duration, milliseconds):
    assert duration.to_milliseconds() == duration.to_millis() == milliseconds


def test_lengths_are_equal_whatever_unit_they_were_made_of():
    assert Time.hours(24) == Time.days(1)
    assert Duration.of_seconds(60) == Duration.of_minutes(1)
    assert hash(Time.seconds(1)) == hash(Time.milliseconds(1000))
    assert Time.seconds(1) != Time.seconds(2)
    assert Duration.of_nanos(1) != Duration.of_nanos(2)


def test_lengths_are_ordered():
    assert Time.seconds(59) < Time.minutes(1) < Time.milliseconds(60_001)
    assert Duration.of_nanos(999_999) < Duration.of_millis(1) <= Duration.of_millis(1)


@pytest.mark.parametrize("length", [Time.hours(1), Duration.of_nanos(5)], ids=str)
def test_a_length_cannot_change_and_can_be_pickled(length):
    with pytest.raises(AttributeError):
        length._milliseconds = 3
    assert pickle.loads(pickle.dumps(length)) == length


@pytest.mark.parametrize(
    ("length", "milliseconds"),
    [
        (Time.minutes(2), 120_000),
        (Duration.of_minutes(2), 120_000),
        (datetime.timedelta(minutes=2), 120_000),
        (datetime.timedelta(days=1, milliseconds=5, microseconds=999), 86_400_005),
    ],
    ids=repr,
)
def test_milliseconds_are_had_of_any_length(length, milliseconds):
    assert milliseconds_of(length) == milliseconds


@pytest.mark.parametrize("length", [5, 5.0, "5 s", None], ids=repr)
def test_what_is_no_length_is_refused(length):
    with pytest.raises(ConfigurationError, match="Time, Duration or timedelta"):
        milliseconds_of(length)


#: What is no whole number, and how the error ends.
FRACTIONS = [
    (lambda: Time.hours(1.5), r"Time.hours\(\) .* whole number, not 1.5: use Time.milliseconds\(5400000\)$"),
    (lambda: Time.seconds(0.5), r"not 0.5: use Time.milliseconds\(500\)$"),
    (lambda: Time.seconds("3"), r"not '3': use Time.milliseconds\(\)$"),
    (lambda: Time.seconds(True), r"not True: use Time.milliseconds\(\)$"),
    (lambda: Duration.of_seconds(2.01), r"not 2.01: use Duration.of_millis\(2010\)$"),
    (lambda: Duration.of_seconds(-2.01), r"not -2.01: use Duration.of_millis\(-2010\)$"),
    (lambda: Time.seconds(np.float64(0.29)), r"use Time.milliseconds\(290\)$"),
    (lambda: Time.seconds(np.float32(1.5)), r"use Time.milliseconds\(1500\)$"),
    (lambda: Time.days(0.1), r"not 0.1: use Time.milliseconds\(8640000\)$"),
    (lambda: Time.seconds(0.0004), r"not 0.0004: use Time.milliseconds\(\)$"),
    (lambda: Time.seconds(2.0004), r"not 2.0004: use Time.milliseconds\(\)$"),
    (lambda: Time.days(1e308), r"use Time.milliseconds\(\)$"),
    (lambda: Time.minutes(2.0), r"not 2.0: use Time.milliseconds\(120000\)$"),
    (lambda: Time.days(math.nan), r"not nan: use Time.milliseconds\(\)$"),
    (lambda: Time.days(math.inf), r"not inf: use Time.milliseconds\(\)$"),
    (lambda: Time.milliseconds(499.5), r"Time.milliseconds\(\) takes a whole number, not 499.5$"),
    (lambda: Time(True), "Time takes a whole number, not True$"),
    (lambda: Time.seconds(datetime.timedelta(1)), "not datetime.timedelta"),
    (lambda: Duration.of_days(0.25), r"not 0.25: use Duration.of_millis\(21600000\)$"),
    (lambda: Duration.of_hours(None), "not None"),
    (lambda: Duration.of_minutes(1.5), r"not 1.5: use Duration.of_millis\(90000\)$"),
    (lambda: Duration.of_seconds("3"), "not '3'"),
    (lambda: Duration.of_millis(0.5), r"not 0.5: use Duration.of_nanos\(500000\)$"),
    (lambda: Duration.of_nanos(0.5), r"Duration.of_nanos\(\) takes a whole number, not 0.5$"),
    (lambda: Duration(0.5), "Duration takes a whole number, not 0.5$"),
    (lambda: Instant.of_epoch_milli(0.5), r"Instant.of_epoch_milli\(\) takes a whole number, not 0.5$"),
]


@pytest.mark.parametrize(("make", "says"), FRACTIONS)
def test_lengths_are_made_of_whole_numbers(make, says):
    with pytest.raises(ConfigurationError, match=says):
        make()


def test_numpys_numbers_are_whole_numbers_too():
    assert Time.seconds(np.int32(3)) == Time.seconds(3)
    assert type(Time.milliseconds(np.int64(3)).to_milliseconds()) is int
    assert type(Time.days(np.int8(100)).to_milliseconds()) is int
    assert Time.days(np.int8(100)) == Time.days(100)
    assert Duration.of_days(np.uint8(200)) == Duration.of_days(200)


class TestInstant:
    @pytest.mark.parametrize(
        ("milliseconds", "seconds", "nanos"),
        [(1500, 1, 500_000_000), (0, 0, 0), (-1, -1, 999_000_000), (-1500, -2, 500_000_000)],
    )
    def test_is_made_of_milliseconds_and_gives_them_back(self, milliseconds, seconds, nanos):
        when = Instant.of_epoch_milli(milliseconds)
        assert when == Instant(seconds, nanos)
        assert when.to_epoch_milli() == milliseconds

    @given(st.integers(-(2**53), 2**53))
    def test_all_milliseconds_come_back(self, milliseconds):
        assert Instant.of_epoch_milli(milliseconds).to_epoch_milli() == milliseconds

    @pytest.mark.parametrize(
        ("when", "milliseconds"),
        [(Instant(1, 1_999_999), 1001), (Instant(-1, 999_999_999), -1), (Instant(-1, 1), -1000)],
        ids=repr,
    )
    def test_parts_of_a_millisecond_are_rounded_down_as_in_java(self, when, milliseconds):
        assert when.to_epoch_milli() == milliseconds

    def test_instants_are_ordered_in_time(self):
        assert Instant(-1, 999_999_999) < Instant(0, 0) < Instant(0, 1) < Instant(1, 0)
        assert sorted([Instant(2, 0), Instant(1, 5)]) == [Instant(1, 5), Instant(2, 0)]

    def test_is_a_value(self):
        when = Instant(1, 2)
        assert (when.seconds, when.nanos, repr(when)) == (1, 2, "Instant<1, 2>")
        assert when != (1, 2)
        assert {when: "x"}[Instant(1, 2)] == "x"
        assert pickle.loads(pickle.dumps(when)) == when
        with pytest.raises(AttributeError):
            when.seconds = 5

    @pytest.mark.parametrize("nanos", [-1, 10**9, 0.5, True, None], ids=repr)
    def test_nanoseconds_are_those_of_one_second(self, nanos):
        with pytest.raises(ConfigurationError, match="nanos of an Instant"):
            Instant(0, nanos)

    @pytest.mark.parametrize("end", [31_556_889_864_403_199, -31_557_014_167_219_200])
    def test_goes_as_far_as_javas(self, end):
        assert Instant(end, 0).seconds == end
        with pytest.raises(ConfigurationError, match="seconds of an Instant"):
            Instant(end + (1 if end > 0 else -1), 0)
        with pytest.raises(ConfigurationError, match="seconds of an Instant"):
            Instant("0", 0)
