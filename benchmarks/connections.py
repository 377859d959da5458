"""What a connection costs: processor time of both ends together, for a frame that is sent and sent back.

    python benchmarks/connections.py [--frames N] [--rounds N] [--json]

A frame takes the unix socket, TCP with authentication codes, or TCP encrypted by TLS. The rounds take turns;
the least of each is shown, in microseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from pyflinkstate.runtime.wire import (
    Address,
    Channel,
    Server,
    ServerName,
    connect,
    listen_on_tcp,
    listen_on_unix,
    new_secret,
)

SIZES = {"200 bytes": 200, "30 KB": 30_000, "80 KB": 80_000, "400 KB": 400_000}
NAME = ServerName("benchmark", "echo")


def echo(channel: Channel) -> None:
    while data := channel.recv_bytes():
        channel.send_bytes(data)


@contextmanager
def connected(way: str) -> Iterator[Callable[[bytes, int], float]]:
    """Yield a function that sends a frame so often, and returns the processor time of one in microseconds."""
    secret = new_secret(is_encrypted=way == "TLS")
    tcp, (unix, path) = listen_on_tcp("127.0.0.1"), listen_on_unix()
    address = Address("127.0.0.1", tcp.getsockname()[1], path)
    server = Server([tcp, unix], address, NAME, secret, echo)
    server.start()
    target = address if way == "unix" else attrs.evolve(address, unix_path=None)
    with connect(target, NAME, secret) as channel:

        def run(frame: bytes, count: int) -> float:
            began = time.process_time()
            for _ in range(count):
                channel.send_bytes(frame)
                channel.recv_bytes()
            return (time.process_time() - began) / count * 1e6

        yield run
        channel.send_bytes(b"")
    server.close()
    os.unlink(path)


def measured(frames: int, rounds: int) -> dict[str, dict[str, float]]:
    ways = ("unix", "codes", "TLS")
    found: dict[str, dict[str, float]] = {name: dict.fromkeys(ways, float("inf")) for name in SIZES}
    for _ in range(rounds):
        for way in ways:
            with connected(way) as run:
                for name, size in SIZES.items():
                    frame = os.urandom(size)
                    run(frame, 10)
                    found[name][way] = min(found[name][way], run(frame, frames))
    return found


def cost_of_connections() -> dict[str, float]:
    """Return the processor time of a new connection, in microseconds."""
    found = {}
    for way in ("codes", "TLS"):
        secret = new_secret(is_encrypted=way == "TLS")
        tcp = listen_on_tcp("127.0.0.1")
        address = Address("127.0.0.1", tcp.getsockname()[1])
        server = Server([tcp], address, NAME, secret, lambda channel: None)
        server.start()
        connect(address, NAME, secret).close()
        began = time.process_time()
        for _ in range(100):
            connect(address, NAME, secret).close()
        found[way] = (time.process_time() - began) / 100 * 1e6
        server.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = measured(args.frames, args.rounds) | {"connection": cost_of_connections()}
    if args.json:
        print(json.dumps(found))
        return
    for name, ways in found.items():
        print(f"{name:>10}", *(f"{way} {us:7.0f}" for way, us in ways.items()))


if __name__ == "__main__":
    main()
