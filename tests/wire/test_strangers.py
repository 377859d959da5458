"""Which unauthenticated connections stay open: the policy alone, by a clock that the test sets."""

from __future__ import annotations

import attrs
import pytest

from pyflinkstate.runtime.wire.handshake import HandshakeLimits, Strangers


@attrs.define
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def strangers(clock: Clock) -> Strangers[int]:
    return Strangers(HandshakeLimits(connections=6, reserve=3, crowd=4, now_s=clock))


def test_any_number_is_accepted_at_once_and_only_the_newest_stay(strangers: Strangers[int]) -> None:
    cut_off = [old for number in range(600) for old in strangers.admit(number)]
    assert cut_off == list(range(594))


def test_strangers_never_cut_off_one_that_has_begun_to_prove_itself(strangers: Strangers[int]) -> None:
    strangers.admit(-1)
    assert strangers.begin(-1) == []
    assert -1 not in [old for number in range(600) for old in strangers.admit(number)]
    strangers.leave(-1)


def test_those_that_have_begun_have_a_bound_of_their_own(strangers: Strangers[int]) -> None:
    for number in range(4):
        strangers.admit(number)
    assert [strangers.begin(number) for number in range(4)] == [[], [], [], [0]]


def test_one_that_was_cut_off_meanwhile_does_not_come_back(strangers: Strangers[int]) -> None:
    for number in range(7):
        strangers.admit(number)
    assert strangers.begin(0) == []
    assert [strangers.begin(number) for number in range(1, 4)] == [[], [], []]


def test_few_have_the_whole_time_and_many_have_less(strangers: Strangers[int], clock: Clock) -> None:
    assert strangers.wait_s() is None
    for number in range(3):
        strangers.admit(number)
    assert strangers.wait_s() == 30.0
    clock.now_s = 2.0
    assert strangers.take_late() == []
    strangers.admit(3)
    assert strangers.is_crowd()
    assert strangers.take_late() == [0, 1, 2]
    assert not strangers.is_crowd()
    assert strangers.wait_s() == 30.0
    clock.now_s = 32.0
    assert strangers.take_late() == [3]
    assert strangers.wait_s() is None


def test_one_that_has_begun_has_the_whole_time_in_a_crowd_too(
    strangers: Strangers[int], clock: Clock
) -> None:
    for number in range(5):
        strangers.admit(number)
    strangers.begin(0)
    assert strangers.wait_s() == 2.0
    clock.now_s = 2.0
    assert strangers.take_late() == [1, 2, 3, 4]
    assert strangers.wait_s() == 28.0
    clock.now_s = 30.0
    assert strangers.take_late() == [0]


def test_one_that_has_left_costs_nothing_any_more(strangers: Strangers[int], clock: Clock) -> None:
    for number in range(6):
        strangers.admit(number)
        strangers.leave(number)
    assert not strangers.is_crowd()
    assert strangers.wait_s() is None
