"""Random programs of streams as data, which JSON can write: a seed always gives the same program.

A record is a triple of a key, a value and a time in milliseconds, and every step turns a stream of triples
into another one, so that steps can follow each other in any order. ``program_interpreter`` runs a program.

A program is only worth comparing if Flink defines its results. So the generator follows how far the order of
the records is defined: completely (``ALL``), between the records of a key (``KEY``), or not (``NONE``).
A later step is drawn only if its results do not depend on the order that is missing. The generator also
follows whether timestamps are those of Java, because PyFlink gives results of a window the timestamp of the
element or timer on which it fires. Windows of counts have the end of time, which PyFlink adds to.
"""

from __future__ import annotations

from random import Random
from typing import Any

#: A step: its name and its arguments.
Step = list[Any]
Program = dict[str, Any]

#: How far the order of records is defined.
ALL, KEY, NONE = "all", "key", "none"
#: Every fifth program begins with timers that two inputs share, which the other draws rarely reach.
SHARED_TIMERS = 5
KINDS = ("value", "list", "map", "reducing", "aggregating")
#: Functions of windows that give the same result for any order of the elements.
_UNORDERED = ("reduce", "reduce_process", "aggregate", "aggregate_apply", "process_sorted")
_ORDERED = ("process", "apply", "process_states")


def program_of(seed: int) -> Program:
    """Return the program of a seed.

    ``watermarks`` says whether each record is followed by its watermark (``each``), or there is one watermark
    after the last record (``end``), and by how much watermarks lag behind the times.
    """
    random = Random(f"program {seed}")
    when = random.choice(["each", "each", "end"])
    if seed % SHARED_TIMERS == 0:
        when = "end"
    drawn = _Drawn(random, when)
    if seed % SHARED_TIMERS == 0:
        drawn.add_shared_timers()
    for _ in range(random.randint(1, 4)):
        drawn.add_step()
    return {
        "seed": seed,
        "watermarks": [when, random.choice([0, 3, 10])],
        "records": _records(random),
        "steps": drawn.steps,
        "order": drawn.order,
    }


def in_order(program: Program, outputs: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
    """Return outputs with the records sorted as far as their order is not defined."""
    if program["order"] == ALL:
        return outputs
    sort_key = _key_of if program["order"] == KEY else None
    return {name: sorted(records, key=sort_key) for name, records in outputs.items()}


def _key_of(record: list[int]) -> int:
    return record[0]


def _records(random: Random) -> list[list[int]]:
    time, records = random.randint(0, 20), []
    for _ in range(random.randint(8, 24)):
        time += random.choice([0, 1, 2, 5, 11])
        late = random.choice([0, 0, 0, 0, 2, 7, 25])
        records.append([random.randint(0, 3), random.randint(1, 99), max(0, time - late)])
    return records


class _Drawn:
    """The steps that were drawn, and how far the order of their results is defined."""

    def __init__(self, random: Random, when: str) -> None:
        self.random = random
        self.when = when
        self.order = ALL
        self.has_timestamps = True
        self.steps: list[Step] = []

    def add_shared_timers(self) -> None:
        """Add timers that read what both of two inputs have left."""
        kind = self.random.choice(["co_timers", "broadcast"])
        self.steps.append(["two", kind, self.random.randint(2, 3)])
        self._loses(NONE)

    def add_step(self) -> None:
        makers = [self._stateless, self._window, self._window, self._two_inputs]
        if self._is_timed():
            makers += [self._timers]
        if self.order != NONE:
            makers += [self._state, self._state, self._rolling]
        self.steps.append(self.random.choice(makers)())

    def _is_timed(self) -> bool:
        return self.has_timestamps and self.when != "unknown"

    def _loses(self, order: str) -> None:
        """Note that at most this order is left."""
        self.order = max(self.order, order, key=[ALL, KEY, NONE].index)

    def _stateless(self) -> Step:
        pick = self.random.randint
        name = self.random.choice(["map", "filter", "flat_map", "side", "rekey", "stamp"])
        if name == "stamp" and not self.has_timestamps:
            name = "map"
        if name == "rekey":
            self._loses(ALL if self.order == ALL else NONE)
        arguments = {
            "map": [pick(1, 9), pick(0, 99)],
            "filter": [pick(2, 5), pick(0, 1)],
            "flat_map": [pick(2, 4)],
            "side": [pick(2, 4), pick(0, 1)],
            "rekey": [pick(2, 5)],
            "stamp": [],
        }
        return [name, *arguments[name]]

    def _state(self) -> Step:
        return ["state", self.random.choice(KINDS), self.random.randint(3, 12)]

    def _rolling(self) -> Step:
        return ["rolling", self.random.choice(["reduce", "sum", "min", "max", "min_by", "max_by"])]

    def _timers(self) -> Step:
        """Timers of a key fire in the order of their times, those of several keys in no order."""
        mode = self.random.choice(["sum", "debounce", "repeat", "clear"])
        emits = self.random.random() < 0.5 and self.order != NONE
        if self.order == NONE:
            mode = "sum"
        step = ["timers", mode, self.random.choice([0, 3, 10, 30]), self.random.choice([1, 5, 10]), emits]
        self._loses(KEY)
        return step

    def _two_inputs(self) -> Step:
        """Nothing orders the records of two inputs, nor do timers fire between known ones of them."""
        kinds = ["union", "co_map", "co_flat_map", "co_state"]
        if self.when == "end" and self.has_timestamps:
            kinds += ["co_timers", "broadcast"]
        kind = self.random.choice(kinds if self.order != NONE else ["union", "co_map", "co_flat_map"])
        self._loses(NONE)
        self.when = "end" if self.when == "end" else "unknown"
        return ["two", kind, self.random.randint(2, 3)]

    def _window(self) -> Step:
        random = self.random
        assigners = {
            "tumbling": [random.choice([5, 10, 20]), random.choice([0, 0, 3])],
            "sliding": [random.choice([10, 20]), random.choice([4, 5, 10])],
            "session": [random.choice([3, 6, 12])],
            "count": [random.randint(1, 4)],
            "count_sliding": [random.randint(2, 4), random.randint(1, 3)],
        }
        names = ["tumbling", "sliding", "session"] if self._is_timed() else []
        names += ["count", "count_sliding"] if self.order != NONE else []
        if not names:
            return self._stateless()
        name = random.choice(names)
        function, (lateness, has_late, trigger) = self._function(name), self._late_and_trigger(name)
        if trigger is not None and trigger[0] == "continuous":
            # Its first firing depends on the element that comes first, and windows of a key fire at one time.
            is_defined = self.order != NONE and (name, function) != ("sliding", "process_states")
            trigger = trigger if is_defined else None
        fires_early = trigger is not None and trigger[0] in ("count", "continuous")
        self._loses(NONE if fires_early and name == "sliding" else KEY)
        if fires_early or lateness or name.startswith("count"):
            self.has_timestamps = False
        return ["window", [name, *assigners[name]], function, lateness, has_late, trigger]

    def _function(self, assigner: str) -> str:
        """Draw a function. The elements of merged sessions have no order, and PyFlink loses reduced ones."""
        if assigner == "session":
            return "process_sorted"
        functions = {*_UNORDERED, *(_ORDERED if self.order != NONE else ())}
        if assigner.startswith("count"):
            functions -= {"process_states"}
        return self.random.choice(sorted(functions))

    def _late_and_trigger(self, assigner: str) -> tuple[int, bool, Step | None]:
        """Return the allowed lateness, whether late records are an output, and the trigger."""
        random = self.random
        if assigner.startswith("count"):
            return 0, False, None
        triggers: list[Step | None] = [None, None, None, ["event", False], ["event", True]]
        if self.order != NONE:
            triggers += [["count", False, random.randint(1, 3)], ["count", True, random.randint(1, 3)]]
        if assigner != "session":
            triggers.append(["continuous", False, random.choice([4, 7])])
        return random.choice([0, 0, 4, 15]), random.random() < 0.4, random.choice(triggers)
