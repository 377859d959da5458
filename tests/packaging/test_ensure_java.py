"""``make`` begins with the Java that Spark would take: it is new enough, or the user is told what to do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "ensure_java.sh"
#: Would install something if this is root.
INSTALLER = "apt-get"


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    """A folder of Javas, and one for the PATH in which nothing can be installed."""
    program(tmp_path / "path" / INSTALLER, "exit 1")
    for version, said in {"8": "1.8.0_402", "21": "21.0.1"}.items():
        program(tmp_path / version / "bin" / "java", f"echo 'openjdk version \"{said}\"' >&2")
    return tmp_path


def ensured(hosts: Path, on_path: str, **env: str) -> subprocess.CompletedProcess[str]:
    path = f"{hosts / on_path / 'bin'}:{hosts / 'path'}:/usr/bin:/bin"
    return subprocess.run(
        ["sh", str(SCRIPT)], check=False, capture_output=True, text=True, env={"PATH": path, **env}
    )


@pytest.mark.parametrize("home", ["", "21"])
def test_one_that_is_new_enough(hosts: Path, home: str) -> None:
    done = ensured(hosts, "8" if home else "21", JAVA_HOME=home and str(hosts / home))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("home", ["8", "nowhere"])
def test_java_home_counts_whatever_is_on_the_path(hosts: Path, home: str) -> None:
    done = ensured(hosts, "21", JAVA_HOME=str(hosts / home))
    assert done.returncode == 1
    assert f"uses JAVA_HOME ({hosts / home}), which has none" in done.stderr


def test_an_old_one_on_the_path(hosts: Path) -> None:
    done = ensured(hosts, "8")
    assert done.returncode != 0


def test_what_was_installed_behind_an_old_one_is_no_help(hosts: Path) -> None:
    program(hosts / "path" / INSTALLER, "exit 0")
    done = ensured(hosts, "8")
    assert done.returncode == 1
    assert "the first java on the PATH is not one" in done.stderr
