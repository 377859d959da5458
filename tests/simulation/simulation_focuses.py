"""Histories with little but one kind of trouble; ``make_history`` makes one from its name and seed."""

from __future__ import annotations

from typing import Any

import attrs
from simulation import PipelinedSimulation, Simulation

#: The name of histories with any trouble.
EVERYTHING = "everything"
#: How many faults there are in a history with one kind of trouble.
FAULTS = 8


@attrs.frozen
class Focus:
    """Histories with little but one kind of trouble; what must come of it in some of them, and in none."""

    first_seed: int
    comes_of_it: set[str]
    never_comes: set[str] = attrs.field(factory=set, kw_only=True)
    rates: dict[str, float] = attrs.Factory(dict)
    settings: dict[str, Any] = attrs.Factory(dict)
    changes: dict[str, Any] = attrs.Factory(dict)
    kind: type[Simulation] = Simulation


FOCUSES = {
    "slots crash": Focus(100_000, {"restarts", "failed checkpoints"}, {"crash a slot": 0.03}),
    "the driver is killed": Focus(101_000, {"killed"}, {"kill the driver": 0.02, "kill at the disk": 0.03}),
    "tasks are copied and killed": Focus(
        102_000, {"busy slots", "restarts"}, {"copy a task": 0.5, "kill a task": 0.03}
    ),
    "snapshots are slow": Focus(
        103_000,
        {"expired checkpoints", "increments"},
        {"stall": 0.15},
        {"timeout_ms": 60, "tolerable_failures": 5, "max_concurrent": 2, "incremental": True},
    ),
    "snapshots fail": Focus(
        104_000,
        {"failed checkpoints", "increments"},
        {"disk error": 0.02},
        {"tolerable_failures": 5, "max_concurrent": 2, "incremental": True, "timeout_ms": 500},
        never_comes={"expired checkpoints"},
    ),
    "storage is flaky": Focus(
        105_000,
        {"failed checkpoints", "restarts"},
        {"flaky disk": 0.03, "late disk error": 0.02},
        {"num_retained": 2, "incremental": True, "interval_ms": 0},
    ),
    "checkpoints are damaged": Focus(
        106_000,
        {"damaged", "fell back"},
        {"kill the driver": 0.01},
        {"num_retained": 3, "interval_ms": 0},
        {"fall_back": True, "retention": None},
    ),
    "people meddle": Focus(
        107_000,
        {"savepoints", "stopped", "cancelled", "back to a savepoint"},
        changes={"restless": 0.9, "nostalgic": 0.8},
    ),
    "the power is cut": Focus(108_000, {"power cuts", "restored"}, {"cut the power": 0.02}),
    "there are two drivers": Focus(
        112_000,
        {"second drivers", "superseded"},
        {"freeze the driver": 0.02},
        changes={"restless": 0.0},
    ),
    "the clock is set": Focus(
        109_000,
        {"set the clock"},
        {"set the clock": 0.1},
        {"timeout_ms": 10_000},
        {"restless": 0.0},
        never_comes={"failed checkpoints", "restarts", "failed"},
    ),
    "programs do not fit": Focus(
        110_000,
        {"did not fit", "killed"},
        {"kill the driver": 0.02},
        changes={"nostalgic": 0.5, "careless": 0.7},
    ),
    "epochs are shuffled ahead": Focus(
        113_000,
        {"skipped", "joined", "failed ahead", "restarts", "busy slots", "savepoints", "stopped", "cancelled"},
        {"crash a slot": 0.02, "kill a task": 0.02, "copy a task": 0.2, "disk error": 0.01},
        {"interval_ms": 5},
        {"is_backlog": True, "idles": 0.0, "restless": 0.7},
    ),
    "savepoints between failures": Focus(
        111_000,
        {"savepoints", "restarts", "back to a savepoint"},
        {"crash a slot": 0.02, "disk error": 0.01},
        changes={"restless": 0.9, "nostalgic": 0.5},
    ),
}
#: All kinds of histories of jobs in stages.
NAMES = (*FOCUSES, EVERYTHING)
#: The name of histories with any trouble of jobs in tasks that stay.
EVERYTHING_PIPELINED = "everything in tasks that stay"
PIPELINED_FOCUSES = {
    "tasks that stay are killed": Focus(
        120_000,
        {"restarts", "kill a task", "copy a task", "aligned", "live", "read ahead"},
        {"kill a task": 0.05, "copy a task": 0.3, "crash a slot": 0.01},
        kind=PipelinedSimulation,
    ),
    "channels stand still and break": Focus(
        121_000,
        {"stall", "break a channel", "freeze a task", "restarts", "aligned", "live", "savepoints"},
        {"stall": 0.1, "break a channel": 0.02, "freeze a task": 0.1},
        changes={"restless": 0.5},
        kind=PipelinedSimulation,
    ),
    "much is read ahead": Focus(
        122_000,
        {"read ahead", "restarts", "kill a task", "savepoints", "cancelled"},
        {"kill a task": 0.02, "crash a slot": 0.01, "disk error": 0.01},
        {"interval_ms": 5},
        {"is_backlog": True, "idles": 0.0, "restless": 0.5, "live_share": 0.1},
        kind=PipelinedSimulation,
    ),
}
#: All kinds of histories of jobs in tasks that stay.
PIPELINED_NAMES = (*PIPELINED_FOCUSES, EVERYTHING_PIPELINED)
#: The kinds of histories by the engine that runs the jobs.
NAMES_BY_ENGINE = {"STAGES": NAMES, "PIPELINED": PIPELINED_NAMES}


def make_history(name: str, seed: int) -> Simulation:
    """Return a history that has not begun."""
    if name == EVERYTHING:
        return Simulation(seed)
    if name == EVERYTHING_PIPELINED:
        return PipelinedSimulation(seed)
    focus = (FOCUSES | PIPELINED_FOCUSES)[name]
    simulation = focus.kind(seed, faults=FAULTS, rates=focus.rates, **focus.settings)
    for attribute, value in focus.changes.items():
        setattr(simulation, attribute, value)
    return simulation


def replay_line(name: str, seed: int) -> str:
    """Return the command that runs a history again."""
    code = f"from simulation_focuses import make_history; make_history({name!r}, {seed}).run()"
    return f'PYTHONPATH=tests/simulation:tests/support .venv/bin/python -c "{code}"'
