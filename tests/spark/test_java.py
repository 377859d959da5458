"""No Java, or one that is too old, is said in a few lines before Spark is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pyflinkstate import StreamExecutionEnvironment, errors
from pyflinkstate.runtime.spark.sessions import check_java

pytestmark = [pytest.mark.spark, pytest.mark.quick]

#: What Java 8 says of itself, on standard error.
JAVA_8 = 'java version "1.8.0_402"\nJava(TM) SE Runtime Environment (build 1.8.0_402-b06)'
JAVA_17 = 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.9" 2023-10-17'

PROGRAM = """
from pyspark import SparkContext
from pyflinkstate import StreamExecutionEnvironment, errors
try:
    StreamExecutionEnvironment.get_execution_environment()
except errors.ConfigurationError as error:
    print(error)
print("started:", SparkContext._gateway is not None)
"""


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A configuration of Spark without a script that could name a Java."""
    (tmp_path / "conf").mkdir()
    return tmp_path / "conf"


def java(folder: Path, says: str, code: int = 0) -> Path:
    """Make a program ``java`` in ``folder/bin`` that says ``says`` on standard error."""
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    program.write_text(f"#!/bin/sh\n/bin/cat >&2 <<'END'\n{says}\nEND\nexit {code}\n")
    program.chmod(0o755)
    return program


def refused(**environment: Any) -> str:
    with pytest.raises(errors.ConfigurationError) as caught:
        check_java({name: str(value) for name, value in environment.items()})
    message = str(caught.value)
    assert message.startswith("Spark needs Java 17 or newer, and ")
    assert len(message.splitlines()) <= 12
    for way in ("apt-get install", "brew install", "conda install", "pip install install-jdk", "JAVA_HOME"):
        assert way in message
    return message.splitlines()[0]


class TestPrograms:
    def run(self, conf: Path, **environment: Any) -> list[str]:
        """Run a program without a session where there is nothing on the PATH but what is given."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in ("JAVA_HOME", "PATH", "PYSPARK_GATEWAY_PORT")
        }
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**kept, "SPARK_CONF_DIR": str(conf), **{k: str(v) for k, v in environment.items()}},
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    def test_no_java_on_the_path(self, conf: Path, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        said = self.run(conf, PATH=tmp_path / "empty")
        assert said[0] == (
            "Spark needs Java 17 or newer, and there is none: JAVA_HOME is not set, and there is no java on "
            "the PATH."
        )
        assert said[-1] == "started: False"

    def test_an_old_java_on_the_path(self, conf: Path, tmp_path: Path) -> None:
        old = java(tmp_path, JAVA_8)
        said = self.run(conf, PATH=old.parent)
        assert said[0].endswith(f"the first on the PATH is {old}, which is Java 8.")
        assert said[-1] == "started: False"


class TestWhereItIsLookedFor:
    def test_java_home_comes_before_the_path(self, conf: Path, tmp_path: Path) -> None:
        new, old = java(tmp_path / "new", JAVA_17), java(tmp_path / "old", JAVA_8)
        check_java({"JAVA_HOME": str(new.parents[1]), "PATH": str(old.parent), "SPARK_CONF_DIR": str(conf)})
        said = refused(JAVA_HOME=old.parents[1], PATH=new.parent, SPARK_CONF_DIR=conf)
        assert said.endswith(f"JAVA_HOME is {tmp_path / 'old'}, which is Java 8.")

    def test_an_empty_java_home_is_none(self, conf: Path, tmp_path: Path) -> None:
        check_java(
            {"JAVA_HOME": "", "PATH": str(java(tmp_path, JAVA_17).parent), "SPARK_CONF_DIR": str(conf)}
        )

    def test_a_java_home_without_java(self, conf: Path, tmp_path: Path) -> None:
        new = java(tmp_path / "new", JAVA_17)
        said = refused(JAVA_HOME=tmp_path / "gone", PATH=new.parent, SPARK_CONF_DIR=conf)
        assert said.endswith(f"JAVA_HOME is {tmp_path / 'gone'}, which has no bin/java.")

    def test_the_file_of_the_release_is_believed(self, conf: Path, tmp_path: Path) -> None:
        never_run = java(tmp_path, "it was run", code=1)
        (tmp_path / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="11.0.22"\n')
        said = refused(PATH=never_run.parent, SPARK_CONF_DIR=conf)
        assert said.endswith("which is Java 11.")

    def test_one_that_does_not_run(self, conf: Path, tmp_path: Path) -> None:
        """As the ``java`` of a macOS that has none."""
        stub = java(tmp_path, "Unable to locate a Java Runtime.", code=1)
        said = refused(PATH=stub.parent, SPARK_CONF_DIR=conf)
        assert said.endswith("which does not run: Unable to locate a Java Runtime.")

    def test_one_that_says_what_nobody_knows_is_tried(self, conf: Path, tmp_path: Path) -> None:
        check_java({"PATH": str(java(tmp_path, "hello").parent), "SPARK_CONF_DIR": str(conf)})

    def test_a_script_of_sparks_may_name_one(self, conf: Path) -> None:
        (conf / "spark-env.sh").write_text("export JAVA_HOME=/opt/java\n")
        check_java({"PATH": "", "SPARK_CONF_DIR": str(conf)})


def test_who_has_a_session_is_not_asked(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert StreamExecutionEnvironment()._spark is spark
    assert StreamExecutionEnvironment(spark)._spark is spark
