"""The machine, the versions and the commit that figures belong to; no names of hosts, users or paths."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: What figures depend on. The results themselves and their drawing do not count.
MEASURED = (
    "pyflinkstate",
    "benchmarks",
    ":(exclude)benchmarks/results",
    ":(exclude)benchmarks/report",
    ":(exclude)benchmarks/record.py",
    ":(exclude)benchmarks/draw.py",
    "pyproject.toml",
    "setup.py",
)
PACKAGES = ("pyflinkstate", "pyspark", "pyarrow", "numpy", "cloudpickle")
SAMPLE_S = 1.0


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments, "--", *MEASURED]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"figures belong to a commit, and there is none here: {error}") from None


def commit() -> str:
    """Return the last commit that changed what is measured."""
    return _git("log", "-1", "--format=%H")


def uncommitted() -> list[str]:
    """Return the changes to what is measured that no commit has."""
    return _git("status", "--porcelain").splitlines()


def machine() -> dict[str, str | int]:
    """Return what the figures are seen on."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count() or 1,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3),
        "os": _os(),
        "architecture": platform.machine(),
    }


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return " ".join(found[1].split()) if found else platform.processor()


def _os() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def versions() -> dict[str, str]:
    """Return the versions of Python, Java and the packages."""
    return {"python": platform.python_version(), "java": _java()} | {name: version(name) for name in PACKAGES}


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    try:
        said = subprocess.run([java, "-version"], check=True, capture_output=True, text=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    found = re.search(r'version "([^"]+)"', said)
    return found[1] if found else "unknown"


def load_average() -> float:
    """Return how many threads ran or waited for a core, on average over a minute."""
    return round(os.getloadavg()[0], 2)


def busy_share() -> float | None:
    """Return which share of all cores is in use, watched for a second, or None where this is unknown.

    A load average still counts the run before, and so says little between two runs.
    """
    before = _ticks()
    time.sleep(SAMPLE_S)
    after = _ticks()
    if before is None or after is None or after[1] == before[1]:
        return None
    return round(1 - (after[0] - before[0]) / (after[1] - before[1]), 2)


def _ticks() -> tuple[int, int] | None:
    """Return the idle time and all time of all cores since the machine started."""
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    except OSError:
        return None
    ticks = [int(part) for part in first.split()[1:]]
    return ticks[3] + ticks[4], sum(ticks[:8])
