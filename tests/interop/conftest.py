"""Tests with real Flink run with ``make interop`` alone, which makes its environment and names it."""

from __future__ import annotations

import os

collect_ignore_glob = [] if "FLINK_ENVIRONMENT" in os.environ else ["test_*.py"]
