"""The Spark session of a benchmark, and how it prints its figures."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession


def local_session(cores: int, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return a quiet session on this machine, whose workers run the Python of the benchmark.

    Args:
        cores: how many tasks run at once.
        settings: further settings of Spark.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers are the system's python3
    # What pip has installed has its bytecode. Without it, each slot and worker compiles what it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def tell(figures: Mapping[str, float], as_json: bool) -> None:
    """Print figures: as one line of JSON, or one a line for people."""
    if as_json:
        print(json.dumps(figures))
    else:
        print("\n".join(f"{name:24} {value:,}" for name, value in figures.items()))
