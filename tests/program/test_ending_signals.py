"""Ctrl-C and SIGTERM while jobs run: they end, and then the program ends as it does without."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.full, pytest.mark.timeout(120)]

#: A program with a job that runs until it is cancelled. What it does is put in the place of ``{}``.
PROGRAM = """
import os, queue, signal, sys, threading, time
from pyflinkstate.errors import JobCancelledError
from pyflinkstate.runtime.master.observe import JobExecutionResult
from pyflinkstate.runtime.program.job_client import JobClient
from pyflinkstate.runtime.program.job_client import run_to_end

# A shell's background programs ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Endless:
    job_id, stop_timeout_ms = "1a2b", 20_000
    def __init__(self):
        self.mail = queue.SimpleQueue()
    def cancel(self, by=""):
        self.mail.put("cancelled by " + by)
    def stop(self, by=""):
        self.mail.put("stopped by " + by)
    def run(self, is_heard=None):
        say("runs")
        say(self.mail.get(timeout=60))
        raise JobCancelledError("it was cancelled")
        yield

def say(*words):
    print(" ".join(map(str, words)) + chr(10), end="", flush=True)

{}
"""


def ended(program: str, *numbers: int) -> tuple[int, list[str], str]:
    """Send the signals when the job runs; return the exit code, and what the program said."""
    command = [sys.executable, "-c", PROGRAM.replace("{}", program)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        jobs = max(1, program.count("Endless()"))
        said = [process.stdout.readline().strip() for _ in range(jobs)]
        for number in numbers:
            process.send_signal(number)
        said += process.stdout.read().splitlines()
        err = process.stderr.read()
        return process.wait(), said, err


#: By a signal: what becomes of the job.
ENDS = {signal.SIGINT: "cancelled by SIGINT", signal.SIGTERM: "stopped by SIGTERM"}
IN_FRONT = "run_to_end(Endless())"
IN_THE_BACKGROUND = "JobClient(Endless(), None).get_job_execution_result().result()"
BESIDE_ANOTHER = "JobClient(Endless(), None); run_to_end(Endless())"


@pytest.mark.parametrize("number", ENDS)
@pytest.mark.parametrize(
    "program", [IN_FRONT, IN_THE_BACKGROUND, BESIDE_ANOTHER, "JobClient(Endless(), None); time.sleep(60)"]
)
def test_the_jobs_end_and_then_the_program_as_by_default_without_a_traceback(
    number: signal.Signals, program: str
) -> None:
    code, said, err = ended(program, number)
    assert {*said} == {"runs", ENDS[number]}
    assert (code, err) == (-number, "")


CAUGHT = """
try:
    {}
except KeyboardInterrupt:
    say("caught")
raise ValueError("another error")
"""


@pytest.mark.parametrize("program", [IN_FRONT, IN_THE_BACKGROUND])
def test_a_program_may_catch_the_interrupt_and_other_errors_are_shown(program: str) -> None:
    code, said, err = ended(CAUGHT.replace("{}", program), signal.SIGINT)
    assert said == ["runs", "cancelled by SIGINT", "caught"]
    assert code == 1
    assert "ValueError: another error" in err


INTERACTIVE = """
sys.ps1 = "> "
JobClient(Endless(), None)
try:
    {}
except KeyboardInterrupt:
    say("goes on")
"""


@pytest.mark.parametrize("number", ENDS)
def test_in_a_notebook_sigterm_cancels_and_an_interrupt_concerns_the_job_of_the_cell_alone(
    number: signal.Signals,
) -> None:
    cell = "run_to_end(Endless())" if number is signal.SIGINT else "time.sleep(60)"
    program = INTERACTIVE.replace("{}", cell)
    code, said, _ = ended(program, number)
    if number is signal.SIGINT:
        assert (code, said[-2:]) == (0, ["cancelled by SIGINT", "goes on"])
    else:
        assert (code, said) == (-number, ["runs", "cancelled by SIGTERM"])


STARTS_ANOTHER = """
class First(Endless):
    def stop(self, by=""):
        pass
    def run(self, is_heard=None):
        has_handler.wait(60)
        return super().run(is_heard)

class Second(Endless):
    def run(self, is_heard=None):
        first.mail.put("stopped")
        return super().run(is_heard)

first, has_handler = First(), threading.Event()
JobClient(first, None)
ours = signal.getsignal(signal.SIGTERM)
signal.signal(signal.SIGTERM, lambda *given: (ours(*given), JobClient(Second(), None)))
has_handler.set()
time.sleep(60)
"""


def test_a_job_that_starts_when_the_program_is_to_end_is_cancelled() -> None:
    code, said, _ = ended(STARTS_ANOTHER, signal.SIGTERM)
    assert sorted(said) == ["cancelled by SIGTERM", "runs", "runs", "stopped"]
    assert code == -signal.SIGTERM


NEVER_STOPS = """
class Busy(Endless):
    stop_timeout_ms = {}
    def stop(self, by=""):
        say("goes on")

run_to_end(Busy())
"""


def test_a_job_that_does_not_stop_in_time_is_cancelled() -> None:
    code, said, err = ended(NEVER_STOPS.replace("{}", "50"), signal.SIGTERM)
    assert said == ["runs", "goes on", "cancelled by SIGTERM"]
    assert code == -signal.SIGTERM
    assert "its jobs have not stopped within 0.05 s" in err


def test_a_second_sigterm_ends_the_program_at_once() -> None:
    command = [sys.executable, "-c", PROGRAM.replace("{}", NEVER_STOPS.replace("{}", "100_000"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        for line in ("runs\n", "goes on\n"):
            assert process.stdout.readline() == line
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == -signal.SIGTERM


OWN_HANDLER = """
def own(number, frame):
    say("own handler")
    sys.exit(7)

signal.signal(signal.{}, own)
run_to_end(Endless())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_handler_of_the_programs_own_decides_itself(number: signal.Signals) -> None:
    code, said, _ = ended(OWN_HANDLER.replace("{}", number.name), number)
    assert said == ["runs", "own handler"]
    assert code == 7


AFTERWARDS = """
before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
job = Endless()
threading.Thread(target=job.cancel, args=["nobody"]).start()
try:
    run_to_end(job)
except JobCancelledError:
    say([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before)
"""


def test_when_no_job_runs_the_handlers_are_those_of_before() -> None:
    assert ended(AFTERWARDS) == (0, ["runs", "cancelled by nobody", "True"], "")


FORKED = """
class Forks(Endless):
    def run(self, is_heard=None):
        reads, writes = os.pipe()
        child = os.fork()
        if not child:
            os.write(writes, b".")
            while True:
                pass
        os.read(reads, 1)
        os.kill(child, signal.SIGTERM)
        say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return iter(())

run_to_end(Forks())
"""


def test_a_process_that_the_program_has_forked_ends_at_once() -> None:
    assert ended(FORKED) == (0, ["-15"], "")


#: The signal is delivered to the thread of the job, as to a main thread that is just about to wait: the wait
#: of the main thread is not interrupted.
NOT_INTERRUPTED = """
class Unheard(Endless):
    def run(self, is_heard=None):
        frames, main = sys._current_frames, threading.main_thread().ident
        while frames()[main].f_code.co_name != "wait":
            os.stat("/")
        for _ in range(100_000):
            os.stat("/")
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        return super().run(is_heard)

result = JobClient(Unheard(), None).get_job_execution_result()
result.{}()
"""


@pytest.mark.parametrize("method", ["result", "exception"])
def test_a_signal_that_does_not_interrupt_the_wait_for_a_result_is_heard(method: str) -> None:
    code, said, _ = ended(NOT_INTERRUPTED.replace("{}", method))
    assert said == ["runs", "stopped by SIGTERM"]
    assert code == -signal.SIGTERM


UNREAD = """
from pyflinkstate.runtime.program import signals
signals.GRACE_S = 0.5

class Prints(Endless):
    stop_timeout_ms = 500
    def run(self, is_heard=None):
        say("runs")
        while True:
            say("." * 1000)

JobClient(Prints(), None).get_job_execution_result().result()
"""


def test_a_program_whose_output_nobody_reads_ends_nevertheless() -> None:
    command = [sys.executable, "-c", PROGRAM.replace("{}", UNREAD)]
    env = {**os.environ, "PYTHONUNBUFFERED": ""}  # a stream without a buffer has no lock
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"runs\n"
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(timeout=30) == -signal.SIGTERM
        finally:
            process.kill()
