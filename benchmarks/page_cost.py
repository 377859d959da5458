"""What 50 viewers of the web page and a scrape each second cost a job: the keyed count with and without them.

    python benchmarks/page_cost.py [--json] [--records N] [--viewers N] [--rounds N]

Viewers are as the page: each listens to the events, and reads all that the page shows whenever there is news.
They run in a process of their own, whose time does not count as the job's but takes processors from it on a
small machine. Rounds are interleaved, so that both meet the same noise; the figures are medians.

* ``throughput_ratio``: records a second with them, against without a page.
* ``cpu_ratio``: the CPU time of the driver, Spark and all slots without a page, against with them. Both are 1
  if the page costs nothing.
* ``answers``: how many pages and scrapes were read.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import epoch_cost
import psutil
from epoch_cost import PARTITIONS
from local_session import local_session, tell

from pyflinkstate import StreamExecutionEnvironment, Types

RECORDS_PER_EPOCH = 250_000
KEYS = 100_000


# --- viewers, in a process of their own -------------------------------------------------------------


def watch(address: str, viewers: int, answers: Any) -> None:
    """Look at the page until the process is ended."""
    audience = Audience(address, answers)
    each = [
        threading.Thread(target=look, daemon=True) for look in [audience.scrape, *[audience.view] * viewers]
    ]
    for thread in each:
        thread.start()
    for thread in each:
        thread.join()


class Audience:
    """Reads the page at an address, and counts what was answered."""

    def __init__(self, address: str, answers: Any) -> None:
        target = urlsplit(address)
        self._host, self._port = target.hostname or "", target.port
        self._headers = {"Authorization": f"Bearer {parse_qs(target.query)['token'][0]}"}
        self._answers = answers

    def view(self) -> None:
        """Read all that the page shows whenever there is news."""
        stream = self._asked("/api/events")
        jobs: list[Any] = []
        while line := stream.readline():
            if line.startswith(b"data:"):
                jobs = jobs or json.loads(self._read("/api/jobs"))["jobs"]
                if jobs:
                    self._read(f"/api/jobs/{jobs[-1]['id']}/page")

    def scrape(self) -> None:
        """Read the metrics each second."""
        while True:
            self._read("/metrics")
            time.sleep(1)

    def _asked(self, path: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=600)
        connection.request("GET", path, headers=self._headers)
        return connection.getresponse()

    def _read(self, path: str) -> bytes:
        with self._asked(path) as answer:
            data = answer.read()
        with self._answers.get_lock():
            self._answers.value += 1
        return data


# --- the job ----------------------------------------------------------------------------------------


def cpu_s(without: int | None) -> float:
    """Return the CPU time so far of this process and all below it, but not of the viewers."""
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        if process.pid != without:
            try:
                total += sum(process.cpu_times()[:4])
            except psutil.NoSuchProcess:
                continue  # its parent has its time now
    return total


def count(records: int, viewers: int | None, answers: Any) -> tuple[float, float]:
    """Run the job; returns the seconds that it took, and its CPU time."""
    with tempfile.TemporaryDirectory() as directory:
        env = StreamExecutionEnvironment(SESSION).set_parallelism(PARTITIONS)
        env.enable_checkpointing(1_000, directory, incremental=True)
        audience = None
        if viewers is not None:
            env.enable_web_page()
            args = (env.get_web_page_address(), viewers, answers)
            audience = multiprocessing.get_context("spawn").Process(target=watch, args=args, daemon=True)
            audience.start()
        slices = PARTITIONS * max(1, records // RECORDS_PER_EPOCH)
        keys = SESSION.sparkContext.range(records, numSlices=slices).map(lambda i: f"c-{i * 7919 % KEYS}")
        stream = env.from_rdd(keys, partitions_per_epoch=PARTITIONS)
        stream.key_by(lambda key: key, key_type=Types.STRING()).process(epoch_cost.Count()).sink_to(
            epoch_cost.Discard()
        )
        pid = None if audience is None else audience.pid
        began, began_cpu = time.perf_counter(), cpu_s(pid)
        env.execute("keyed count")
        spent = time.perf_counter() - began, cpu_s(pid) - began_cpu
        if audience is not None:
            audience.kill()
            audience.join()
        env.close()
        return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--records", type=int, default=8_000_000)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    answers = multiprocessing.get_context("spawn").Value("q", 0)
    runs: dict[str, Callable[[], tuple[float, float]]] = {
        "alone": lambda: count(args.records, None, answers),
        "watched": lambda: count(args.records, args.viewers, answers),
    }
    count(10_000, None, answers)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for _ in range(args.rounds):
        for name, run in runs.items():
            found[name].append(run())

    def ratio(place: int) -> float:
        pairs = zip(found["alone"], found["watched"], strict=True)
        return round(statistics.median(alone[place] / watched[place] for alone, watched in pairs), 3)

    figures = {"throughput_ratio": ratio(0), "cpu_ratio": ratio(1), "answers": answers.value}
    tell(figures, args.json)


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [sys.path[0], os.environ.get("PYTHONPATH")]))
    SESSION = local_session(PARTITIONS)
    main()
