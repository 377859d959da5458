"""Kill rounds on a standalone cluster of two hosts, so that slots are reached over TCP.

    python tests/soak/soak_two_hosts.py [--rounds 3] [--seed 2000] [--engine PIPELINED]

A host is a network namespace with an address of its own on a bridge of this machine, and a mount namespace
with a folder for sockets of its own. Needs root and ``ip``; without them the program says so and ends well.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import attrs
import pyspark

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from kill_rounds import HOST, SECOND_DRIVER, KillRound, Plan

BRIDGE = "pfs-bridge"
DRIVER = "10.77.0.1"
HOSTS = {"pfs-host1": "10.77.0.11", "pfs-host2": "10.77.0.12"}
PORT = 7977
SPARK_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
KINDS = ("executor", "slot", "worker", "driver", SECOND_DRIVER, HOST)
#: A cluster that is not there by then is broken.
PATIENCE_S = 60


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def take_network_down() -> None:
    for host in HOSTS:
        subprocess.run(["ip", "netns", "del", host], check=False, capture_output=True)
    subprocess.run(["ip", "link", "del", BRIDGE], check=False, capture_output=True)


@contextmanager
def network() -> Iterator[None]:
    """Make the bridge and the hosts; take them away at the end."""
    take_network_down()  # what a soak left that was killed
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{DRIVER}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for number, (host, address) in enumerate(HOSTS.items()):
            ip("netns", "add", host)
            ip("link", "add", f"pfs-v{number}", "type", "veth", "peer", "name", "eth0", "netns", host)
            ip("link", "set", f"pfs-v{number}", "master", BRIDGE, "up")
            ip("-n", host, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", host, "link", "set", "eth0", "up")
            ip("-n", host, "link", "set", "lo", "up")
        yield
    finally:
        take_network_down()


def ending_with_this(command: list[str]) -> list[str]:
    """Return a command that ends when this program is killed."""
    return ["setpriv", "--pdeathsig", "KILL", *command]


def started(command: list[str], log: Path, **env: str) -> subprocess.Popen[bytes]:
    """Start a process that ends as well when this program is killed."""
    with open(log, "ab") as output:
        return subprocess.Popen(
            ending_with_this(command),
            stdout=output,
            stderr=output,
            env={**os.environ, **env},
            start_new_session=True,
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its children."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    process.wait()


@attrs.define
class Host:
    """A host of the cluster: its worker, in a network namespace and with a folder for sockets of its own.

    Args:
        name: of its network namespace.
        folder: of the cluster; it has a folder of the host's name for what the host writes.
        url: the master's.
        user: who runs it, as the end of a line of a shell that is followed by a command.
        env: more of its environment.
    """

    name: str
    folder: Path
    url: str
    user: str = "exec"
    env: dict[str, str] = attrs.Factory(dict)
    _worker: subprocess.Popen[bytes] | None = None

    @property
    def own_folder(self) -> Path:
        return self.folder / self.name

    def start(self) -> None:
        """Start the worker, which ends when this program is killed."""
        address, sockets = HOSTS[self.name], self.folder / "sockets"
        worker = f"{SPARK_CLASS} org.apache.spark.deploy.worker.Worker --host {address} --cores 2"
        worker += f" --memory 2g --webui-port 0 --work-dir {self.own_folder} {self.url}"
        own = f"mount --make-rprivate / && mount -t tmpfs tmpfs {sockets} && {self.user} {worker}"
        command = ["ip", "netns", "exec", self.name, "unshare", "--mount", "sh", "-c", own]
        env = {"TMPDIR": str(sockets), "SPARK_LOCAL_IP": address, "SPARK_LOCAL_DIRS": str(self.own_folder)}
        self._worker = started(command, self.folder / f"{self.name}.log", **env, **self.env)

    def end(self) -> None:
        """End the worker and its children."""
        if self._worker is not None:
            end(self._worker)
            self._worker = None

    def crash(self) -> None:
        """Kill all that runs in its network namespace."""
        deadline = time.monotonic() + PATIENCE_S
        while (pids := self._pids()) and time.monotonic() < deadline:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.end()

    def _pids(self) -> list[int]:
        told = subprocess.run(["ip", "netns", "pids", self.name], check=True, capture_output=True, text=True)
        return [int(pid) for pid in told.stdout.split()]


@attrs.frozen
class Cluster:
    """A master, and its hosts."""

    url: str
    hosts: list[Host]

    def crash_one(self, rng: random.Random) -> str:
        """Kill all processes of a host, and start its worker again; return its name."""
        host = rng.choice(self.hosts)
        host.crash()
        host.start()
        return host.name


@contextmanager
def cluster(folder: Path, users: dict[str, str] | None = None, **env: str) -> Iterator[Cluster]:
    """Start a master here and a worker on each host.

    Args:
        folder: for what they write.
        users: by host, see :class:`Host`.
        env: more of the environment of all; ``{host}`` in it is replaced by the host's name.
    """
    url = f"spark://{DRIVER}:{PORT}"
    (folder / "sockets").mkdir(exist_ok=True)  # the same name on each host, and another folder
    with ExitStack() as stack:
        master = [SPARK_CLASS, "org.apache.spark.deploy.master.Master", "--host", DRIVER]
        master += ["--port", str(PORT), "--webui-port", "0"]
        log = folder / "master.log"
        # A driver that is frozen keeps its cores, and the second one needs others.
        options = f"-Dspark.deploy.defaultCores={len(HOSTS)}"
        stack.callback(end, started(master, log, SPARK_LOCAL_IP=DRIVER, SPARK_MASTER_OPTS=options))
        hosts = []
        for name in HOSTS:
            own = {key: value.format(host=name) for key, value in env.items()}
            hosts.append(host := Host(name, folder, url, (users or {}).get(name, "exec"), own))
            stack.callback(host.end)
            host.start()
        wait_for_workers(log)
        yield Cluster(url, hosts)


def wait_for_workers(log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while log.read_text().count("Registering worker") < len(HOSTS):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the workers did not come: {log.read_text()}")
        time.sleep(0.2)


def has_what_it_needs() -> bool:
    """Return whether hosts can be made here; say so if they cannot."""
    if os.getuid() == 0 and shutil.which("ip") is not None and shutil.which("unshare") is not None:
        return True
    print("two hosts: left out, it needs root and the commands ip and unshare")
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=2000)
    parser.add_argument("--engine", choices=["STAGES", "PIPELINED"], default="STAGES")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that hosts are taken down
    if not has_what_it_needs():
        return
    with tempfile.TemporaryDirectory() as directory, network(), cluster(Path(directory)) as spark:
        os.environ["SPARK_LOCAL_IP"] = DRIVER
        for number in range(args.rounds):
            folder = Path(directory) / str(number)
            folder.mkdir()
            started = time.monotonic()
            seed = args.seed + number
            plan = attrs.evolve(Plan.drawn(seed, KINDS), engine=args.engine)
            this = KillRound(
                seed, folder, spark.url, plan, launch=ending_with_this, crash_host=spark.crash_one
            )
            problems = this.run().problems()
            if problems:
                raise AssertionError(f"two hosts, seed {seed}: {problems}, {this.log}")
            print(f"two hosts, seed {seed}: OK after {time.monotonic() - started:.0f} s, {plan}", flush=True)


if __name__ == "__main__":
    main()
