"""Soak test of the copy-on-write map, after Flink's ``testRandomModificationsAndCopyOnWriteIsolation``.

    python tests/soak/soak_state_map.py [--operations 10000000] [--seed 42]

Random operations over 20 keys in 4 namespaces are done to a map and to a dict, and what is returned is
changed in place. Snapshots are held open meanwhile, and are compared with a copy of the dict from the time
they were taken when they are released. Half of the operations are done to one map with the usual tables,
which lives all the time; the others to maps that double often, have more keys, and live for a short time.

The program ends with 1 at the first difference, and says at which operation; the seed leads there again.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import attrs

from pyflinkstate.backends.heap.copy_on_write_state_map import CopyOnWriteStateMap

NAMESPACES = 4
MILLION = 1_000_000
#: Operations done to the long-lived map, and then to as many short-lived ones as it takes.
TURN = 10_000


@attrs.frozen
class Life:
    """How a map is made, and after how many operations what is done to it."""

    #: capacity, bucket load and entries moved by an operation; the map's own without
    table: tuple[int, ...] = ()
    keys: int = 20
    snapshot: int = 500
    extra_snapshot: int = 1_000
    release: int = 5_000
    check: int = 100


LONG_LIFE = Life()
SHORT_LIFE = 200
SHORT_LIVES = [
    Life(table, keys=100, snapshot=10, extra_snapshot=20, release=50, check=5)
    for table in ((1, 1, 1), (1, 1, 4), (4, 1, 1), (1, 2, 1), (2, 3, 2), (1, 1, 1_000))
]


class SoakFailure(Exception):
    """The map and the dict differ, or the map failed."""


def copy_of(value: Any) -> Any:
    """Return an independent copy of what is stored."""
    return [copy_of(part) for part in value] if type(value) is list else value


def change_in_place(value: Any, number: int) -> None:
    """Change a list, and what is in it."""
    if type(value) is not list:
        return
    if len(value) > 4:
        value.clear()
    for part in value:
        change_in_place(part, number)
    value.append(number)


def appended(stored: Any, number: int) -> Any:
    """Transform: change what is stored if that is possible."""
    if type(stored) is not list:
        return [number]
    change_in_place(stored, number)
    return stored


def replaced(stored: Any, number: int) -> Any:
    """Transform: make a new value, without touching the old one."""
    return [copy_of(stored), number]


class Soak:
    """One map and its dict, and the snapshots of the map that are open."""

    def __init__(self, rng: random.Random, make_map: Callable[..., Any], life: Life) -> None:
        self.rng = rng
        self.life = life
        self.state_map = make_map(copy_of, *life.table)
        self.model: dict[Hashable, Any] = {}
        self.open: list[tuple[Any, dict[Hashable, Any]]] = []
        self.visitor: Any = None
        #: What was there since the visitor began, and was not given yet.
        self.due: set[Hashable] = set()
        self.steps = 0
        self.operations: list[Callable[[Hashable], None]] = [
            self.get,
            self.put,
            self.remove,
            self.remove_and_get_old,
            self.transform,
            self.visit,
        ]

    def below(self, bound: int) -> int:
        """Return a random number."""
        return int(self.rng.random() * bound)

    def step(self) -> None:
        """Do one operation, and what is due after it."""
        key = (self.below(self.life.keys), self.below(NAMESPACES))
        self.operations[self.below(len(self.operations))](key)
        self.steps += 1
        life, steps = self.life, self.steps
        if len(self.state_map) != len(self.model):
            raise SoakFailure(f"the size is {len(self.state_map)}, not {len(self.model)}")
        if steps % life.snapshot == 0:
            self.open.append((self.state_map.snapshot(), self.copy_of_model()))
        if steps % life.extra_snapshot == 0:
            self.state_map.snapshot().release()
        if steps % life.release == 0:
            self.release_all()
        if steps % life.check == 0:
            self.state_map._check()

    def finish(self) -> None:
        """Compare and release all that is left."""
        while self.visitor is not None and self.visitor.has_next():
            self.due -= set(self.visitor.next_columns()[0])
        self.expect_nothing_due()
        self.release_all()
        self.state_map._check()
        self.expect("items()", dict(self.state_map.items()), self.model)

    # --- operations ----------------------------------------------------------------------------------

    def get(self, key: Hashable) -> None:
        value = self.state_map.get(key)
        self.expect(f"get({key})", value, self.model.get(key))
        if self.state_map.contains_key(key) is not (key in self.model):
            raise SoakFailure(f"contains_key({key}) is wrong")
        number = self.below(MILLION)
        change_in_place(value, number)
        change_in_place(self.model.get(key), number)

    def put(self, key: Hashable) -> None:
        value = self.new_value()
        self.state_map.put(key, copy_of(value))
        self.model[key] = value

    def remove(self, key: Hashable) -> None:
        self.state_map.remove(key)
        self.model.pop(key, None)
        self.due.discard(key)

    def remove_and_get_old(self, key: Hashable) -> None:
        old = self.state_map.remove_and_get_old(key)
        self.expect(f"remove_and_get_old({key})", old, self.model.pop(key, None))
        change_in_place(old, 0)
        self.due.discard(key)

    def transform(self, key: Hashable) -> None:
        number, function = self.below(MILLION), (appended, replaced)[self.below(2)]
        self.state_map.transform(key, number, function)
        self.model[key] = function(self.model.get(key), number)

    def visit(self, _: Hashable) -> None:
        if self.visitor is None or not self.visitor.has_next():
            self.expect_nothing_due()
            self.visitor = self.state_map.incremental_visitor(2)
            self.due = set(self.model)
        for key, value in zip(*self.visitor.next_columns(), strict=True):
            if key not in self.model:
                raise SoakFailure(f"the visitor gave {key}, which is not there")
            self.expect(f"the visitor at {key}", value, self.model[key])
            self.due.discard(key)
            choice = self.below(4)
            if choice == 0:
                self.put(key)
            elif choice == 1:
                self.remove(key)

    def expect_nothing_due(self) -> None:
        """Called when a visitor is at its end."""
        if self.due:
            raise SoakFailure(f"the visitor left out {sorted(self.due)}")

    # --- snapshots -----------------------------------------------------------------------------------

    def copy_of_model(self) -> dict[Hashable, Any]:
        return {key: copy_of(value) for key, value in self.model.items()}

    def release_all(self) -> None:
        """Compare the open snapshots and release them, in random order."""
        self.rng.shuffle(self.open)
        while self.open:
            snapshot, expected = self.open.pop()
            keys, values = snapshot.columns()
            if not len(keys) == len(snapshot) == len(expected):
                raise SoakFailure(f"snapshot {snapshot.version} has {len(keys)} entries, not {len(expected)}")
            found = dict(zip(keys, values, strict=True))
            self.expect(f"snapshot {snapshot.version}", found, expected)
            snapshot.release()

    def new_value(self) -> Any:
        """Return a list, a list in a list, or something that cannot change."""
        number = self.below(MILLION)
        choice = number % 8
        if choice == 0:
            return None
        if choice == 1:
            return number
        return [[number], number] if choice < 4 else [number]

    @staticmethod
    def expect(what: str, found: Any, expected: Any) -> None:
        if found != expected:
            raise SoakFailure(f"{what} is {found!r}, not {expected!r}")


def run(
    operations: int,
    seed: int,
    make_map: Callable[..., Any] = CopyOnWriteStateMap,
    report: Callable[[str], None] = print,
) -> None:
    """Do so many operations.

    Args:
        operations: how many.
        seed: of the random numbers.
        make_map: makes a map of a copier, a capacity, a bucket load and a number of entries to move.
        report: is told of the progress.

    Raises:
        SoakFailure: the first difference.
    """
    rng = random.Random(seed)
    done = 0
    soak = long_lived = Soak(rng, make_map, LONG_LIFE)
    try:
        while done < operations:
            is_long = done // TURN % 2 == 0
            soak = (
                long_lived if is_long else Soak(rng, make_map, SHORT_LIVES[rng.randrange(len(SHORT_LIVES))])
            )
            for _ in range(min(TURN if is_long else SHORT_LIFE, operations - done)):
                done += 1
                soak.step()
            if not is_long:
                soak.finish()
            if done % MILLION == 0:
                report(f"{done:,} operations")
        soak = long_lived
        soak.finish()
    except Exception as error:
        raise SoakFailure(
            f"seed {seed}, operation {done:,}, table {soak.life.table or 'as usual'}: "
            f"{type(error).__name__}: {error}"
        ) from error


def main(arguments: Sequence[str] | None = None, make_map: Callable[..., Any] = CopyOnWriteStateMap) -> int:
    """Run as the command line says; return the exit code."""
    parser = argparse.ArgumentParser(description="Soak test of the copy-on-write map.")
    parser.add_argument("--operations", type=int, default=10 * MILLION)
    parser.add_argument("--seed", type=int, default=42)
    options = parser.parse_args(arguments)
    try:
        run(options.operations, options.seed, make_map, lambda line: print(line, flush=True))
    except SoakFailure as failure:
        print(f"FAILED: {failure}", flush=True)
        return 1
    print(f"OK: {options.operations:,} operations, seed {options.seed}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
