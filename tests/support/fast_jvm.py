"""Lets JVMs start in half the time: the classes that Spark loads come parsed and verified from one file.

The file is a class data sharing archive, which a JVM writes when it ends. A JVM takes it only if it is of the
same build and has the same jars before it; otherwise it starts as without.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

#: A test's JVM lives for seconds: what the second compiler and a parallel collector would save costs more.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: Loads what a job needs; the archive is written as Spark's JVM ends.
SAMPLE = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
session = builder.config("spark.driver.defaultJavaOptions", sys.argv[1]).getOrCreate()
context = session.sparkContext
pairs = context.parallelize([(1, 2), (3, 4)], 2).mapPartitionsWithIndex(lambda _, pairs: pairs)
pairs.repartitionAndSortWithinPartitions(2).collect()
process = context._gateway.proc
session.stop()
process.stdin.close()
process.wait()
"""


def quick_start(folder: Path) -> dict[str, str]:
    """Return environment variables with which Spark starts quickly.

    Args:
        folder: is empty; JVMs that have directories with files among their jars take no archive.
    """
    return {
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LAUNCHER_OPTS": QUICK,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }


def java_options(archive: Path | None) -> str:
    """Return the JVM's options; ``archive`` may be missing."""
    return (
        QUICK
        if archive is None
        else f"{QUICK} -XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"
    )


def make_archive(archive: Path, folder: Path) -> None:
    """Write the archive, which takes as long as two starts of Spark. A JVM before Java 13 writes none."""
    options = f"{QUICK} -XX:ArchiveClassesAtExit={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"
    subprocess.run(
        [sys.executable, "-c", SAMPLE, options],
        check=False,
        env={**os.environ, **quick_start(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=300,
    )
