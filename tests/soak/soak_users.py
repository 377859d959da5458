"""Hosts with other users, working directories, umasks and Pythons, on the two hosts of ``soak_two_hosts``.

    python tests/soak/soak_users.py

The driver and the two hosts have three users, who share a group, and each host has its Python elsewhere. The
job is right where the group may write what the job writes, also if processes are killed. Where only the
driver's user may, the job fails with an error that says who may not write which file.
"""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import attrs

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from kill_rounds import KillRound, Plan
from other_pythons import python_without_this_package
from soak_submit import QUIET, SUBMIT, check, submitted
from soak_two_hosts import DRIVER, HOSTS, Cluster, cluster, ending_with_this, has_what_it_needs, network

from pyflinkstate.runtime.spark.workers import zipped

#: Users and a group that every Linux has; those of hosts with their umasks.
DRIVERS_USER, HOSTS_USERS, GROUP = "games", {"daemon": "007", "nobody": "002"}, "users"
#: How each host calls its Python, which lies elsewhere on each.
PYTHON = "python-of-this-host"
#: Of the kill round: the driver that comes second runs the job at another parallelism.
SEED = 1


@attrs.frozen
class User:
    """One who runs processes, and what others of the group may do with what these write."""

    name: str
    umask: str

    def exec(self) -> str:
        """Return the line of a shell that runs a command as this user; it is followed by the command."""
        of_user, group = pwd.getpwnam(self.name), grp.getgrnam(GROUP).gr_gid
        ids = f"--reuid {of_user.pw_uid} --regid {of_user.pw_gid} --groups {group}"
        # What is to happen when the parent ends is forgotten with the change of the user.
        return f"umask {self.umask} && exec setpriv {ids} --pdeathsig KILL"


def opened(paths: list[Path], spare: Path) -> str:
    """Return the line of a shell that lets all users reach folders, in a mount namespace of its own.

    An interpreter or a checkout may be in a folder that only its owner can enter.
    """
    closed = {
        path: next((each for each in reversed(path.parents) if not is_open(each)), None) for path in paths
    }
    behind = {path: above for path, above in closed.items() if above is not None}
    lines = [":"]
    for number, path in enumerate(behind):
        (spare / str(number)).mkdir(parents=True)
        lines.append(f"mount --bind {path} {spare}/{number}")
    lines += [f"mount -t tmpfs -o mode=755 tmpfs {above}" for above in sorted(set(behind.values()))]
    lines += [f"mkdir -p {path} && mount --bind {spare}/{n} {path}" for n, path in enumerate(behind)]
    return " && ".join(lines)


def is_open(folder: Path) -> bool:
    return bool(folder.stat().st_mode & 0o001)


def shared(folder: Path, mode: int) -> Path:
    """Make a folder of the driver's user; files in it are of the group, which may write by the mode."""
    folder.mkdir()
    os.chown(folder, pwd.getpwnam(DRIVERS_USER).pw_uid, grp.getgrnam(GROUP).gr_gid)
    folder.chmod(mode)
    return folder


def as_driver(opening: str, command: list[str], umask: str = "007") -> list[str]:
    """Return a command that the driver's user runs; it ends when this program is killed."""
    own = f"mount --make-rprivate / && {opening} && {User(DRIVERS_USER, umask).exec()} {shlex.join(command)}"
    return ending_with_this(["unshare", "--mount", "sh", "-c", own])


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that hosts are taken down
    if not has_what_it_needs():
        return
    with tempfile.TemporaryDirectory() as directory, network():
        folder = Path(directory)
        folder.chmod(0o711)
        opening = opened([Path(sys.base_prefix), Path(__file__).parents[2]], folder / "spare")
        users = {}
        for host, (name, umask) in zip(HOSTS, HOSTS_USERS.items(), strict=True):
            python = python_without_this_package(folder / f"python-{host}")
            (python.parent / PYTHON).symlink_to(python)
            shutil.chown(shared(folder / host, 0o700), name)
            users[host] = f"{opening} && {User(name, umask).exec()}"
        path = f"{directory}/python-{{host}}/bin:{os.environ['PATH']}"
        with cluster(folder, users, PATH=path, HOME=f"{directory}/{{host}}") as spark:
            try_all(spark, folder, opening)


def try_all(spark: Cluster, folder: Path, opening: str) -> None:
    """Run the job in folders that the group may write, and in one that it may not."""
    py_files = ["--py-files", str(zipped(folder))]
    os.environ |= {
        "PYSPARK_DRIVER_PYTHON": str(folder / f"python-{next(iter(HOSTS))}" / "bin" / "python"),
        "PYSPARK_PYTHON": PYTHON,
        "SPARK_LOCAL_IP": DRIVER,
        "HOME": str(folder),
    }

    def check_job(name: str, umask: str, *expected: str) -> None:
        said = submitted(
            spark.url,
            shared(folder / name, 0o2770),
            Path(PYTHON),
            *py_files,
            arguments=("--files", "--who", "--executors", "2", "--parallelism", "4"),
            launch=lambda command: as_driver(opening, command, umask),
        )
        check(f"a driver with the umask {umask}", said, *expected)

    check_job("right", "007", "equal", *(f" {user} {folder}/python-pfs-host" for user in HOSTS_USERS))
    check_job("wrong", "022", "Permission denied (refused to user ", f"{folder}/wrong/job/checkpoints/")
    this = KillRound(
        SEED,
        shared(folder / "kills", 0o2770),
        spark.url,
        Plan(("slot", "driver")),
        launch=lambda command: as_driver(opening, [SUBMIT, *QUIET, *py_files, *command[1:], "--files"]),
    )
    problems = this.run().problems()
    if problems:
        raise AssertionError(f"kill round: {problems}, {this.log}")
    starts = [line for line in this.log if line.startswith("start")]
    print(f"kill round: OK, {this.troubles()}, {starts}", flush=True)


if __name__ == "__main__":
    main()
