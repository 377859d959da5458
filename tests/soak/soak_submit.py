"""``spark-submit`` with the package in a zip file, on a standalone cluster of two hosts that lack it.

    python tests/soak/soak_submit.py [--archive PACKED.tar.gz] [--rounds 1] [--seed 3000]

The hosts are those of ``soak_two_hosts``, and need what that needs. Their Python has all packages but this
one. With an archive of ``venv-pack``, the job is run once more with the Python in it. Kill rounds come last:
of the driver, of its JVM and of a host, and as many more as are asked for.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyspark

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from kill_rounds import HOST, KillRound, Plan
from other_pythons import python_without_this_package
from soak_two_hosts import DRIVER, Cluster, cluster, ending_with_this, has_what_it_needs, network

from pyflinkstate.runtime.spark.workers import zipped

SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
JOB = str(Path(__file__).parents[1] / "support" / "cluster_job.py")
#: What standalone clusters say of Python programs in cluster mode.
REFUSED = "Cluster deploy mode is currently not supported for python applications on standalone clusters"
QUIET = ["--conf", "spark.ui.showConsoleProgress=false"]
TIMEOUT_S = 600
#: What is killed. The process that was started is the JVM here, and the driver is a child of it.
KINDS = ("executor", "slot", "worker", "driver", "jvm", HOST)


def submitted(
    url: str,
    folder: Path,
    python: Path,
    *options: str,
    arguments: tuple[str, ...] = (),
    launch: Callable[[list[str]], list[str]] = ending_with_this,
) -> str:
    """Submit the job, and return what it printed; ``launch`` puts something around the command."""
    folder.mkdir(exist_ok=True)
    command = [SUBMIT, "--master", url, *QUIET, *options, JOB, str(folder / "job"), *arguments]
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        launch(command),
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=TIMEOUT_S,
        env={**clean, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": DRIVER},
    )
    return done.stdout + done.stderr


def check(what: str, said: str, *expected: str) -> None:
    missing = [text for text in expected if text not in said]
    if missing:
        raise AssertionError(f"{what}: {missing} not in {said}")
    places = next((line for line in said.splitlines() if line.startswith("{")), "")
    print(f"{what}: OK {places}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--archive", type=Path)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=3000)
    args = parser.parse_args()
    if not has_what_it_needs():
        return
    with tempfile.TemporaryDirectory() as directory, network(), cluster(Path(directory)) as spark:
        folder, url = Path(directory), spark.url
        other = python_without_this_package(folder / "other")
        py_files = ["--py-files", str(zipped(folder))]
        on_both = ("--executors", "2", "--parallelism", "4")
        said = submitted(url, folder / "client", other, *py_files, arguments=on_both)
        check("client mode, --py-files", said, "equal")
        said = submitted(url, folder / "encrypted", other, *py_files, arguments=("--encrypted", *on_both))
        check("connections in TLS", said, "equal")
        said = submitted(url, folder / "bare", other)
        check("without the package", said, "No module named 'pyflinkstate'")
        said = submitted(url, folder / "cluster", other, *py_files, "--deploy-mode", "cluster")
        check("cluster mode", said, REFUSED)
        if args.archive is not None:
            archive = ["--archives", f"{args.archive}#environment"]
            executors = ["--conf", "spark.pyspark.python=./environment/bin/python"]
            driver = ["--conf", f"spark.pyspark.driver.python={sys.executable}"]
            said = submitted(url, folder / "archive", other, *archive, *executors, *driver, arguments=on_both)
            check("an archive of venv-pack", said, "equal")
        os.environ |= {"PYSPARK_PYTHON": str(other), "SPARK_LOCAL_IP": DRIVER}
        for number, kind in enumerate(("driver", "jvm", HOST)):
            kill_round(spark, folder / kind, number, py_files, Plan((kind,), waits=True))
        for seed in range(args.seed, args.seed + args.rounds):
            kill_round(spark, folder / str(seed), seed, py_files, Plan.drawn(seed, KINDS))


def kill_round(spark: Cluster, folder: Path, seed: int, py_files: list[str], plan: Plan) -> None:
    """Run a program that is submitted, and kill what it runs on."""
    folder.mkdir()

    def launch(command: list[str]) -> list[str]:
        return ending_with_this([SUBMIT, *QUIET, *py_files, *command[1:]])

    this = KillRound(seed, folder, spark.url, plan, launch=launch, crash_host=spark.crash_one)
    problems = this.run().problems()
    if problems:
        raise AssertionError(f"kill round, seed {seed}: {problems}, {this.log}")
    print(f"kill round, seed {seed}: OK, {this.troubles()}", flush=True)


if __name__ == "__main__":
    main()
