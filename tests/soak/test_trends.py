"""A figure rises if its line does, after the warm-up and by more than its share."""

from __future__ import annotations

import pytest
from trends import rise_of, rising


def line(begin: float, end: float) -> list[float]:
    return [begin + (end - begin) * at / 99 for at in range(100)]


@pytest.mark.parametrize(
    ("name", "warm_up", "settled", "is_rising"),
    [
        ("slots: USS in MiB", line(50, 100), [100 + at % 2 for at in range(100)], False),
        ("slots: USS in MiB", line(100, 100), line(100, 103), True),
        ("slots: USS in MiB", line(100, 100), line(100, 101), False),
        ("slots: USS in MiB", line(100, 100), line(100, 50), False),
        ("slots: descriptors", line(20, 20), line(20, 22), False),
        ("slots: descriptors", line(20, 20), line(20, 24), True),
    ],
)
def test_what_rises(name: str, warm_up: list[float], settled: list[float], is_rising: bool) -> None:
    samples = {name: [*enumerate([*warm_up, *settled])]}
    assert bool(rising(samples, 99, 0.02)) == is_rising


def test_the_rise_of_a_line() -> None:
    assert rise_of([(at * 10, value) for at, value in enumerate(line(7, 9))]) == pytest.approx(2)
