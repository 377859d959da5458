"""Tests with real Flink run with ``make interop`` alone, which makes its environment and names it."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import pytest
from flink_runs import Program
from interop_jobs import Jobs

collect_ignore_glob = [] if "FLINK_ENVIRONMENT" in os.environ else ["test_*.py"]

KEYS = int(os.environ.get("INTEROP_KEYS", "100000"))
#: In process mode, PyFlink asks the JVM for each state of a new key, one by one: it was seen to process 70
#: records of this program in a second, so that 100,000 keys take half an hour and more in each run.
LESS_FOR = {"process": 20}


@pytest.fixture(scope="session")
def jobs_of_keys(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Jobs]:
    """Return the runs in Flink with so many keys, made once for all tests."""
    return functools.cache(lambda keys: Jobs(keys, tmp_path_factory.mktemp("savepoints")))


@pytest.fixture
def jobs(jobs_of_keys: Callable[[int], Jobs], program: Program) -> Jobs:
    """Return the runs for a test of one program."""
    return jobs_of_keys(KEYS // LESS_FOR.get(program, 1))
