"""The whole runtime under simulated failures: 2,000 histories, each told by its seed; see ``simulation``."""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from typing import Any

import attrs
import pytest
import simulation as simulation_module
from simulation import RATES, Simulation
from simulation_cluster import CHANGES, INTERRUPTIBLE, Mishap
from simulation_focuses import FOCUSES, NAMES, make_history, replay_line
from simulation_storage import Operation, Verdict
from tiers import cases

from pyflinkstate.runtime.settings.restart import FixedDelayRestart

SEEDS_PER_BLOCK = 50
BLOCKS = 40

#: What must have happened in each block, or its histories are too much alike to test anything.
REMARKABLE = {
    "cancelled",
    "did not fit",
    "failed ahead",
    "failed checkpoints",
    "increments",
    "joined",
    "killed",
    "restarts",
    "restored",
    "savepoints",
    "second drivers",
    "set aside",
    "skipped",
    "stopped",
}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What all the failures have logged is no help, and takes its time."""
    caplog.set_level(logging.CRITICAL, "pyflinkstate")


def run(simulation: Simulation) -> None:
    """Run a history; what goes wrong in it names the seed."""
    try:
        simulation.run()
    except BaseException as error:
        raise AssertionError(f"seed {simulation.seed}: {type(error).__name__}: {error}") from error


@pytest.mark.parametrize("block", cases(range(BLOCKS), quick=[0]))
def test_the_output_is_that_of_an_undisturbed_run_and_every_checkpoint_restores(block: int) -> None:
    notes: Counter[str] = Counter()
    struck: Counter[str] = Counter()
    for seed in range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK):
        simulation = Simulation(seed)
        run(simulation)
        notes += simulation.notes
        struck += simulation.chaos.struck
    assert set(notes) >= REMARKABLE
    assert set(struck) >= set(RATES)


def test_a_seed_replays_its_history() -> None:
    histories: list[list[Any]] = [[], []]
    for history in histories:
        simulation = Simulation(42)
        decide = simulation.disk.decide

        def noting(operation: Operation, decide: Any = decide, history: list[Any] = history) -> Verdict:
            verdict = decide(operation)
            history.append((str(operation), verdict.part, str(verdict.error)))
            return verdict

        simulation.disk.decide = noting
        run(simulation)
        history += [simulation.notes, simulation.chaos.struck, simulation.cluster.steps]
    assert histories[0] == histories[1]
    assert len(histories[0]) > 100


# --- one kind of trouble at a time -------------------------------------------------------------------


HISTORIES = 25
QUICK_FOCUSES = ("the driver is killed", "there are two drivers")


@pytest.mark.parametrize("name", cases(FOCUSES, QUICK_FOCUSES))
def test_one_kind_of_trouble_is_survived(name: str) -> None:
    focus = FOCUSES[name]
    notes: Counter[str] = Counter()
    for seed in range(focus.first_seed, focus.first_seed + HISTORIES):
        simulation = make_history(name, seed)
        run(simulation)
        notes += simulation.notes + simulation.chaos.struck
    assert set(notes) >= focus.comes_of_it
    assert not set(notes) & focus.never_comes


# --- fresh histories -----------------------------------------------------------------------------------

#: How many histories of each name have fresh seeds in the quick and in the full tier.
FRESH = (2, 60)
#: By name: the seeds of histories that went wrong once.
FOUND: dict[str, tuple[int, ...]] = {
    "checkpoints are damaged": (648938212420,),
    "everything": (103127405318,),
    "savepoints between failures": (290672977426,),
    "there are two drivers": (759807026851,),
}


@pytest.mark.parametrize("histories", cases(FRESH, quick=FRESH[:1]))
@pytest.mark.parametrize("name", NAMES)
def test_fresh_histories_are_survived(name: str, histories: int) -> None:
    first = secrets.randbelow(2**40)
    print(f"{name}: {histories} histories from seed {first}")
    for seed in (*FOUND.get(name, ()), *range(first, first + histories)):
        try:
            make_history(name, seed).run()
        except BaseException as error:
            raise AssertionError(
                f"{name}, seed {seed}: {type(error).__name__}: {error}\n"
                f"To run it again: {replay_line(name, seed)}\n"
                f"Once it is mended, add the seed to FOUND"
            ) from error


# --- trouble at every point ----------------------------------------------------------------------------


def small(incremental: bool) -> Simulation:
    """Return a short history without any trouble."""
    simulation = Simulation(7, faults=0, interval_ms=0, num_retained=1, incremental=incremental)
    simulation.retention, simulation.restless, simulation.fall_back = None, 0.0, False
    simulation.careless = 0.0
    # Epochs of at most a third of the records, each covered by a checkpoint before the next begins.
    third = len(simulation.model.records) // 3
    simulation.epoch_sizes, simulation.waits_for_checkpoints = (third, third), True
    return simulation


def operations_of_the_driver(simulation: Simulation) -> list[str]:
    """Run a history; return the names of what its driver does with the storage, in order."""
    names: list[str] = []
    decide = simulation.disk.decide

    def noting(operation: Operation) -> Verdict:
        if operation.process is simulation.cluster.driver:
            names.append(operation.name)
        return decide(operation)

    simulation.disk.decide = noting
    run(simulation)
    return names


#: What happens, and at which operations it differs from what is above it.
MISHAPS = {
    "killed before": (Mishap(0.0, kills=True), None),
    "killed amid": (Mishap(0.5, kills=True), INTERRUPTIBLE),
    "killed after": (Mishap(1.0, kills=True), CHANGES),
    "without power before": (Mishap(0.0, kills=True, cuts_power=True), None),
    "refused": (Mishap(0.5), None),
    "done and refused": (Mishap(1.0), CHANGES),
}
#: Each with full checkpoints, and with incremental ones.
TROUBLES = [(name, incremental) for name in MISHAPS for incremental in (False, True)]
QUICK_TROUBLES = (("killed amid", True),)


@pytest.mark.parametrize(("name_of_mishap", "incremental"), cases(TROUBLES, QUICK_TROUBLES))
def test_the_driver_may_have_trouble_at_any_operation_of_its_storage(
    name_of_mishap: str, incremental: bool
) -> None:
    mishap, names = MISHAPS[name_of_mishap]
    undisturbed = small(incremental)
    operations = operations_of_the_driver(undisturbed)
    assert undisturbed.notes["published"] >= 3
    for number, name in enumerate(operations, start=1):
        if names is None or name in names:
            simulation = small(incremental)
            simulation.cluster.script = {number: mishap}
            run(simulation)
            assert simulation.chaos.struck["scripted"] == 1, f"operation {number}, {name}"


class LostAnswer:
    """Checkpoint 2 is published and the answer is lost; then deletes of it are refused so many times.

    The driver is killed ``kill_at`` of its operations later, if that is not 0.
    """

    def __init__(self, refusals: int, kill_at: int) -> None:
        self.refusals = refusals
        self.kill_at = kill_at
        self.is_lost = False
        #: The driver's operations since then, until the next checkpoint is published.
        self.operations = 0
        self.is_over = False

    def __call__(self, operation: Operation) -> Mishap | None:
        is_publication = operation.name == "move" and operation.target.endswith("/_metadata")
        if not self.is_lost:
            self.is_lost = is_publication and operation.target.endswith("/chk-2/_metadata")
            return Mishap(1.0) if self.is_lost else None
        self.is_over = self.is_over or is_publication
        self.operations += not self.is_over
        if self.operations == self.kill_at and not self.is_over:
            return Mishap(0.0, kills=True)
        if self.refusals and operation.name == "delete" and operation.path.endswith("/chk-2/_metadata"):
            self.refusals -= 1
            return Mishap(0.0)
        return None


@pytest.mark.parametrize("incremental", [False, True], ids=["full", "incremental"])
@pytest.mark.parametrize("refusals", cases([1, 2, 4], quick=[]))
def test_a_checkpoint_that_seemed_to_fail_is_never_the_latest_without_its_output(
    refusals: int, incremental: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulation_module, "_restart_strategy", lambda draw: FixedDelayRestart(9, 0))

    def run_with(kill_at: int) -> LostAnswer:
        simulation = small(incremental)
        simulation.settings = attrs.evolve(simulation.settings, tolerable_failures=0)
        simulation.cluster.scenario = scenario = LostAnswer(refusals, kill_at)
        run(simulation)
        assert scenario.is_lost
        assert simulation.notes["killed"] == (kill_at > 0)
        return scenario

    undisturbed = run_with(0)
    assert undisturbed.refusals == 0
    for kill_at in range(1, undisturbed.operations + 1):
        run_with(kill_at)
