"""Nexmark's queries on Spark: each gives the right table, as the benchmark checks it."""

from __future__ import annotations

from typing import Any

import nexmark
import pytest
from nexmark_suite.generator import GeneratorConfig, events_between
from nexmark_suite.oracles import Tables
from nexmark_suite.queries import QUERIES

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]

#: 200 seconds of event time.
CONFIG = GeneratorConfig(10_000, rate=50, disorder=100)


@pytest.fixture(scope="module")
def tables() -> Tables:
    return Tables(events_between(CONFIG, 0, CONFIG.events))


@pytest.mark.parametrize("number", QUERIES)
def test_the_results_are_right(spark: Any, number: int, tables: Tables) -> None:
    assert nexmark.is_right(spark, QUERIES[number], CONFIG, 2, tables)
