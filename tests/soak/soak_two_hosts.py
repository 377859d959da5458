"""Kill rounds on a standalone cluster of two hosts, so that slots are reached over TCP.

    python tests/soak/soak_two_hosts.py [--rounds 3] [--seed 2000]

A host is a network namespace with an address of its own on a bridge of this machine, and a mount namespace
with a folder for sockets of its own. Needs root and ``ip``; without them the program says so and ends well.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from kill_plan import SECOND_DRIVER, Plan
from kill_rounds import KillRound

BRIDGE = "pfs-bridge"
DRIVER = "10.77.0.1"
HOSTS = {"pfs-host1": "10.77.0.11", "pfs-host2": "10.77.0.12"}
PORT = 7977
SPARK_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
KINDS = ("executor", "slot", "worker", "driver", SECOND_DRIVER)
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


@contextmanager
def process(command: list[str], log: Path, **env: str) -> Iterator[None]:
    """Run a process, and end it and its children in the end; it ends as well when this program is killed."""
    with open(log, "ab") as output:
        started = subprocess.Popen(
            ending_with_this(command),
            stdout=output,
            stderr=output,
            env={**os.environ, **env},
            start_new_session=True,
        )
    try:
        yield
    finally:
        os.killpg(started.pid, 15)
        started.wait()


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Start a master here and a worker on each host; yields the master's URL."""
    url = f"spark://{DRIVER}:{PORT}"
    sockets = folder / "sockets"  # the same name on each host, and another folder
    sockets.mkdir()
    with ExitStack() as stack:
        master = [SPARK_CLASS, "org.apache.spark.deploy.master.Master", "--host", DRIVER]
        master += ["--port", str(PORT), "--webui-port", "0"]
        stack.enter_context(process(master, folder / "master.log", SPARK_LOCAL_IP=DRIVER))
        for host, address in HOSTS.items():
            worker = f"{SPARK_CLASS} org.apache.spark.deploy.worker.Worker --host {address} --cores 1"
            worker += f" --memory 1g --webui-port 0 --work-dir {folder}/{host} {url}"
            own = f"mount --make-rprivate / && mount -t tmpfs tmpfs {sockets} && exec {worker}"
            command = ["ip", "netns", "exec", host, "unshare", "--mount", "sh", "-c", own]
            env = {"TMPDIR": str(sockets), "SPARK_LOCAL_IP": address, "SPARK_LOCAL_DIRS": f"{folder}/{host}"}
            stack.enter_context(process(command, folder / f"{host}.log", **env))
        wait_for_workers(folder / "master.log")
        yield url


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
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that hosts are taken down
    if not has_what_it_needs():
        return
    with tempfile.TemporaryDirectory() as directory, network(), cluster(Path(directory)) as url:
        os.environ["SPARK_LOCAL_IP"] = DRIVER
        for number in range(args.rounds):
            folder = Path(directory) / str(number)
            folder.mkdir()
            started = time.monotonic()
            seed = args.seed + number
            plan = Plan.drawn(seed, KINDS)
            this = KillRound(seed, folder, url, plan, launch=ending_with_this)
            problems = this.run().problems()
            if problems:
                raise AssertionError(f"two hosts, seed {seed}: {problems}, {this.log}")
            print(f"two hosts, seed {seed}: OK after {time.monotonic() - started:.0f} s, {plan}", flush=True)


if __name__ == "__main__":
    main()
