"""Passes events to the machine of a job, and its instructions to whoever carries them out, one at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.runtime.job.events import Event, InstructionFailed
from pyflinkstate.runtime.job.instructions import Instruction, RunEpoch, StartSlots
from pyflinkstate.runtime.job.machine import JobMachine

#: Instructions after which the engine runs something, unless they fail.
BEGIN_A_RUN = (StartSlots, RunEpoch)


class Dispatcher:
    """The way between the machine, which decides, and the job, which acts.

    Args:
        machine: gets the events.
        execute: carries out an instruction, and returns the event that answers it, if there is one.
    """

    def __init__(self, machine: JobMachine, execute: Callable[[Instruction], Event | None]) -> None:
        self._machine = machine
        self._execute = execute
        self._inbox: deque[Event] = deque()
        self._is_busy = False

    def tell(self, event: Event) -> None:
        """Pass an event to the machine and carry out its instructions; later events wait for that.

        If an instruction fails, those after it are dropped, and the machine hears of the failure.
        """
        self._inbox.append(event)
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._inbox:
                self._carry_out(self._machine.handle(self._inbox.popleft()))
        finally:
            self._is_busy = False

    def tell_at_once(self, event: Event) -> None:
        """Pass an event to the machine during an instruction; carry out the answer before that goes on."""
        for instruction in self._machine.handle(event):
            answer = self._execute(instruction)
            if answer is not None:
                self.tell_at_once(answer)

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            try:
                answer = self._execute(instruction)
            except PyFlinkStateError as error:
                self._inbox.appendleft(InstructionFailed(error, isinstance(instruction, BEGIN_A_RUN)))
                return
            if answer is not None:
                self._inbox.appendleft(answer)
