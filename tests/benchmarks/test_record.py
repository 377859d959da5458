"""Benchmarks are recorded run by run, whole or not at all, and go on where they were interrupted."""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import record_path
from record import BenchmarkFailed, Recorder, arguments_of, record_all
from report import conditions
from report.programs import BENCHMARKS, Benchmark
from report.results import Result, read, write
from report_support import begun, result_of
from support_runtime import wait_for_exit

NAME = "keyed_count"
#: Prints what it is told, and notes that it was called.
PROGRAM = """
import json, os, sys
from pathlib import Path
folder = Path(__file__).parent
calls = folder / "calls"
number = len(calls.read_text()) if calls.exists() else 0
calls.write_text("." * (number + 1))
print("Something else that Spark has to say")
if (folder / f"fails_{number}").exists():
    sys.exit("no")
cores = len(os.sched_getaffinity(0))
print(json.dumps({"ratio_no_checkpoint": 1 + number, "arguments": sys.argv[1:], "cores": cores}))
"""


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    monkeypatch.setattr(conditions, "busy_share", lambda: 0.0)  # it watches for a second
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "keyed_count.py").write_text(PROGRAM)
    return Recorder(3, tmp_path / "results", tmp_path / "unfinished", programs)


def calls(recorder: Recorder) -> int:
    return len((recorder.programs / "calls").read_text())


def recorded(recorder: Recorder) -> Result:
    result = read(recorder.results / f"{NAME}.json")
    assert result is not None
    return result


def record(recorder: Recorder, **changes: Any) -> None:
    recorder.record(BENCHMARKS[NAME], begun(NAME, **changes))


def test_a_result_has_every_run_and_what_they_come_to(recorder: Recorder) -> None:
    record(recorder, arguments=("--rounds", "2"))
    text = json.loads((recorder.results / f"{NAME}.json").read_text())
    figure = {"better": "higher", "worst": 1, "median": 2, "spread": 1.0}
    assert text["figures"]["ratio_no_checkpoint"] == figure
    assert [run["figures"]["ratio_no_checkpoint"] for run in text["runs"]] == [1, 2, 3]
    assert text["runs"][0]["figures"]["arguments"] == ["--json", "--rounds", "2"]
    assert {"commit", "machine", "versions", "arguments"} <= text.keys()
    assert {"load_before", "load_after", "busy_before"} <= text["runs"][0].keys()


def test_an_interrupted_benchmark_goes_on_after_its_last_run(recorder: Recorder) -> None:
    (recorder.programs / "fails_1").touch()
    with pytest.raises(BenchmarkFailed, match="keyed_count: exit 1"):
        record(recorder)
    assert not recorder.results.exists()
    record(recorder)
    assert calls(recorder) == 4
    assert recorded(recorder).figures()["ratio_no_checkpoint"].values == (1, 3, 4)
    assert not list(recorder.unfinished.iterdir())


@pytest.mark.full
def test_runs_of_another_commit_are_not_gone_on_with(recorder: Recorder) -> None:
    (recorder.programs / "fails_1").touch()
    with pytest.raises(BenchmarkFailed):
        record(recorder)
    record(recorder, commit="d" * 40)
    assert recorded(recorder).figures()["ratio_no_checkpoint"].values == (3, 4, 5)


@pytest.mark.full
def test_what_is_recorded_is_not_recorded_again(recorder: Recorder) -> None:
    record(recorder)
    record(recorder)
    assert calls(recorder) == 3
    record(recorder, commit="d" * 40)
    assert calls(recorder) == 6


@pytest.mark.full
def test_unless_it_is_asked_to(recorder: Recorder) -> None:
    record(recorder)
    again = Recorder(1, recorder.results, recorder.unfinished, recorder.programs, again=True)
    record(again)
    assert recorded(recorder).figures()["ratio_no_checkpoint"].values == (4,)


def test_output_without_figures_is_an_error(recorder: Recorder) -> None:
    (recorder.programs / "keyed_count.py").write_text("print('nothing')")
    with pytest.raises(BenchmarkFailed, match="no figures in\nnothing"):
        record(recorder)


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
def test_a_benchmark_on_one_core_has_one(recorder: Recorder) -> None:
    before = os.sched_getaffinity(0)
    name = "keyed_count_one_core"
    recorder.record(BENCHMARKS[name], begun(name))
    result = read(recorder.results / f"{name}.json")
    assert result is not None
    assert [run.figures["cores"] for run in result.runs] == [1, 1, 1]
    assert os.sched_getaffinity(0) == before


@pytest.mark.full
def test_a_failure_does_not_keep_the_others_from_being_recorded(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "commit", lambda: "c" * 40)  # where there is no repository
    assert record_all(recorder, ["snapshot", NAME], small=False, rounds=None) == ["snapshot"]
    assert len(recorded(recorder).runs) == 3


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = result_of(NAME, {"ratio_no_checkpoint": 1})
    path = write(old, tmp_path)

    def fail(_: int) -> None:
        raise OSError("disk is full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk is full"):
        write(result_of(NAME, {"ratio_no_checkpoint": 2}), tmp_path)
    assert read(path) == old


def test_runs_with_different_figures_do_not_belong_together() -> None:
    with pytest.raises(ValueError, match="keyed_count: the runs have different figures"):
        result_of(NAME, {"ratio_no_checkpoint": 1}, {"ratio": 1})


@pytest.mark.parametrize("benchmark", BENCHMARKS.values(), ids=lambda benchmark: benchmark.name)
def test_programs_take_the_arguments_that_they_are_called_with(benchmark: Benchmark) -> None:
    text = (Path(conditions.ROOT) / "benchmarks" / f"{benchmark.program}.py").read_text()
    shared = (Path(conditions.ROOT) / "benchmarks" / "heap_state.py").read_text()
    options = {*arguments_of(benchmark, True, None), *arguments_of(benchmark, False, 2), "--json"}
    for option in filter(lambda option: option.startswith("--"), options):
        assert f'"{option}"' in (text + shared if "heap_state" in text else text), option


def test_conditions_name_no_host_user_or_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real name may be part of what is named: a host may be called as its system is."""
    monkeypatch.setattr(platform, "node", lambda: "name-of-the-host")
    monkeypatch.setattr(socket, "gethostname", platform.node)
    for variable in ("HOME", "USER", "LOGNAME"):
        monkeypatch.setenv(variable, "/home/name-of-the-user")
    said = str({**conditions.machine(), **conditions.versions()})
    for private in ("name-of-the-host", "name-of-the-user", str(conditions.ROOT)):
        assert private not in said


# --- the way of a record -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", record_path.NAMES)
def test_each_program_goes_all_steps_and_counts_each_record(name: str) -> None:
    found = record_path.steps(name, 10_000)  # raises an error if a record is missing
    assert found["source"] > 0
    assert found["unpickle"] > 0
    assert (found["timestamps"] == 0) == (name in record_path.UNTIMED)


def test_a_record_that_is_missing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_path, "run_slot", lambda function, frames: [])
    with pytest.raises(AssertionError, match="value: 0 of"):
        record_path.steps("value", 1_000)


# --- a program ends with the one that started it -----------------------------------------------------------


STAYS = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
OWNER = f"import sys; from engines import owned; owned.run([sys.executable, '-c', {STAYS!r}])"
ASKS = """
import subprocess, sys
from engines import owned
done = owned.run([sys.executable, "-c", "print('said'); exit(3)"], stdout=subprocess.PIPE)
assert (done.returncode, done.stdout) == (3, "said\\n")
"""
#: Programs are started by processes of one thread.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_it_is_run_as_by_subprocess() -> None:
    subprocess.run([sys.executable, "-c", ASKS], check=True, env=ENVIRONMENT)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does it")
def test_it_ends_when_its_owner_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as owner:
        assert owner.stdout is not None
        process_fd = os.pidfd_open(int(owner.stdout.readline()))
        owner.send_signal(signal.SIGKILL)
        wait_for_exit(process_fd)
        os.close(process_fd)
    assert owner.returncode == -signal.SIGKILL
