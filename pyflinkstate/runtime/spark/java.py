"""Whether there is a Java for Spark: found out before Spark is started, and said in a few lines.

It is looked for where Spark's own start script looks: in ``JAVA_HOME``, and where that is not set on the
``PATH``. Its version is in the file ``release`` of its folder; of one without that file it is asked for.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import attrs
from pyspark.find_spark_home import _find_spark_home

from pyflinkstate.errors import ConfigurationError

#: The least that PySpark 4 runs on.
NEEDED = 17
#: An installed Java prints its version in a fraction of a second.
_TIMEOUT_S = 30
_RELEASE = re.compile(r'^JAVA_VERSION="(\d+)(?:\.(\d+))?', re.MULTILINE)
_SAID = re.compile(r'\bversion "(\d+)(?:\.(\d+))?')

_HOW = f"""\
Get one in one of these ways:
  Debian, Ubuntu:  sudo apt-get install openjdk-{NEEDED}-jre-headless
  macOS:           brew install openjdk@{NEEDED}
  conda:           conda install -c conda-forge openjdk={NEEDED}
  pip:             pip install install-jdk && python -c "import jdk; print(jdk.install('{NEEDED}'))"
If java is not on the PATH then, set JAVA_HOME to the folder that it was put into. Then start again."""


def check_java(environment: Mapping[str, str] | None = None) -> None:
    """See that Spark can be started.

    Args:
        environment: the variables to go by; by default those of this process.

    Raises:
        ConfigurationError: there is no Java, or it is too old.
    """
    environment = os.environ if environment is None else environment
    if _has_script_of_its_own(environment):
        return
    fault = _fault(environment)
    if fault is not None:
        raise ConfigurationError(f"Spark needs Java {NEEDED} or newer, and {fault}.\n{_HOW}", needed=NEEDED)


def _has_script_of_its_own(environment: Mapping[str, str]) -> bool:
    """Return whether a ``spark-env.sh`` may say where Java is: then only Spark knows."""
    folder = environment.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    return os.path.exists(os.path.join(folder, "spark-env.sh"))


def _fault(environment: Mapping[str, str]) -> str | None:
    home = environment.get("JAVA_HOME")
    if home:
        java = shutil.which(os.path.join(home, "bin", "java"))
        where = f"JAVA_HOME is {home}"
        return f"{where}, which has no bin/java" if java is None else _fault_of(java, where)
    java = shutil.which("java", path=environment.get("PATH"))
    if java is None:
        return "there is none: JAVA_HOME is not set, and there is no java on the PATH"
    return _fault_of(java, f"JAVA_HOME is not set, and the first on the PATH is {java}")


def _fault_of(java: str, where: str) -> str | None:
    """Return the problem of ``java``; None also if it runs with unknown output."""
    version = _released_version(java)
    if version is None:
        said = _said(java)
        if said.fault is not None:
            return f"{where}, which does not run: {said.fault}"
        version = said.version
    if version is None or version >= NEEDED:
        return None
    return f"{where}, which is Java {version}"


@attrs.frozen
class _Said:
    version: int | None = None
    fault: str | None = None


def _released_version(java: str) -> int | None:
    with suppress(OSError, ValueError):  # ValueError: it is no text
        return _version(_RELEASE, (Path(java).resolve().parents[1] / "release").read_text())
    return None


def _said(java: str) -> _Said:
    try:
        done = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _Said(fault=str(error))
    text = done.stderr + done.stdout
    if done.returncode != 0:
        return _Said(fault=next(iter(text.splitlines()), f"exit code {done.returncode}").rstrip("."))
    return _Said(_version(_SAID, text))


def _version(pattern: re.Pattern[str], text: str) -> int | None:
    """Return the feature version: 8 of ``1.8.0_402``, 17 of ``17.0.9``."""
    found = pattern.search(text)
    if found is None:
        return None
    first, second = int(found[1]), found[2]
    return int(second) if first == 1 and second is not None else first
