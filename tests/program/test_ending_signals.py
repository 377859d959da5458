"""Ctrl-C and SIGTERM while a job runs: it is cancelled, and then the program ends as it does without."""

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
    job_id = "1a2b"
    def __init__(self):
        self.mail = queue.SimpleQueue()
    def cancel(self, by=""):
        self.mail.put(by)
    def run(self, is_heard=True):
        say("runs")
        by = self.mail.get(timeout=60)
        say("cancelled by", by)
        raise JobCancelledError("it was cancelled")
        yield

def say(*words):
    print(*words, flush=True)

{}
"""


def ended(program: str, *numbers: int) -> tuple[int, list[str], str]:
    """Send the signals when the job runs; return the exit code, and what the program said."""
    command = [sys.executable, "-c", PROGRAM.replace("{}", program)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = [process.stdout.readline().strip()]
        for number in numbers:
            process.send_signal(number)
        said += process.stdout.read().splitlines()
        err = process.stderr.read()
        return process.wait(), said, err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_job_is_cancelled_and_then_the_program_ends_as_by_default(number: signal.Signals) -> None:
    code, said, err = ended("run_to_end(Endless())", number)
    assert said == ["runs", f"cancelled by {number.name}"]
    assert code == -number
    assert "JobCancelledError" not in err
    assert err.count("  File ") <= 4, err


def test_sigterm_cancels_a_job_in_the_background_too() -> None:
    program = "JobClient(Endless(), None).get_job_execution_result().result()"
    code, said, _ = ended(program, signal.SIGTERM)
    assert said == ["runs", "cancelled by SIGTERM"]
    assert code == -signal.SIGTERM


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
    def run(self, is_heard=True):
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
    def run(self, is_heard=True):
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
    assert said == ["runs", "cancelled by SIGTERM"]
    assert code == -signal.SIGTERM


UNREAD = """
from pyflinkstate.runtime.program import job_client
job_client.GRACE_S = 0.5

class Prints(Endless):
    def run(self, is_heard=True):
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
