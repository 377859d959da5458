"""The soak programs of simulations and mutations begin, and end as they should."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import soak_mutations
import soak_simulation
from simulation import Simulation
from simulation_focuses import NAMES, PIPELINED_NAMES, make_history


def one_thread(at_once: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1)


@pytest.mark.full
@pytest.mark.parametrize(("engine", "names"), [("STAGES", NAMES), ("PIPELINED", PIPELINED_NAMES)])
def test_every_name_has_its_share_of_the_histories(
    engine: str, names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--engine", engine, "--histories", str(len(names)), "--first", "3"]
    assert soak_simulation.main(arguments, one_thread) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{len(names)} histories, from seed 3, ")
    assert all(f"\n{name}: 1 histories, " in out for name in names)
    assert "published" in out
    assert out.endswith("\nOK\n")


def test_the_first_history_that_goes_wrong_ends_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []

    def broken(name: str, seed: int) -> Simulation:
        begun.append(seed)
        simulation = make_history(name, seed)
        if seed == 7:
            simulation.run = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
        return simulation

    monkeypatch.setattr(soak_simulation, "make_history", broken)
    arguments = ["--histories", "20", "--first", "5", "--focus", "slots crash"]
    assert soak_simulation.main(arguments, one_thread) == 1
    out = capsys.readouterr().out
    assert begun == [5, 6, 7]
    assert "'slots crash', seed 7, goes wrong" in out
    assert "make_history('slots crash', 7).run()" in out
    assert "ZeroDivisionError" in out


# --- mutations of checkpoints ------------------------------------------------------------------------------


@pytest.mark.parametrize("mutations", soak_mutations.MUTATIONS.values(), ids=soak_mutations.MUTATIONS)
def test_every_mutation_fits_the_package_and_changes_it(mutations):
    package = soak_mutations.ROOT / "pyflinkstate"
    for mutation in mutations:
        assert (package / mutation.file).read_text().count(mutation.old) == 1, mutation.name
        assert mutation.old != mutation.new


@pytest.mark.parametrize("mutations", soak_mutations.MUTATIONS.values(), ids=soak_mutations.MUTATIONS)
def test_mutations_have_names_of_their_own(mutations):
    names = [mutation.name for mutation in mutations]
    assert len(set(names)) == len(names) >= 10


@pytest.mark.full
@pytest.mark.parametrize("name", ["a slot ends its epoch at the first barrier"])
def test_a_fault_put_into_tasks_that_stay_is_caught(name: str) -> None:
    (mutation,) = [made for made in soak_mutations.MUTATIONS["PIPELINED"] if made.name == name]
    assert "goes wrong" in (soak_mutations.caught_at(mutation, "PIPELINED", 20) or "")
