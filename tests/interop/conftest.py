"""Tests with real Flink run with ``make interop`` alone, which makes its environment and names it."""

from __future__ import annotations

import os

import pytest
from interop_jobs import Jobs

collect_ignore_glob = [] if "FLINK_ENVIRONMENT" in os.environ else ["test_*.py"]

KEYS = int(os.environ.get("INTEROP_KEYS", "100000"))


@pytest.fixture(scope="session")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Jobs:
    """The runs in Flink, made once for all tests."""
    return Jobs(KEYS, tmp_path_factory.mktemp("savepoints"))
