"""The tables of faults that ``soak_mutations.py`` puts into the package."""

from __future__ import annotations

from pathlib import Path

import attrs


@attrs.frozen
class Mutation:
    """One fault: ``old`` stands once in ``file`` and is replaced by ``new``."""

    name: str
    file: str
    old: str
    new: str

    def apply(self, package: Path) -> None:
        """Put the fault into a copy of the package; raises ``ValueError`` where it does not fit."""
        path = package / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.old!r} stands {text.count(self.old)} times in {self.file}")
        path.write_text(text.replace(self.old, self.new))


#: Caught by histories of jobs in stages.
STAGES_MUTATIONS = (
    Mutation(
        "a checkpoint completes with an acknowledgement missing",
        "runtime/master/coordinator.py",
        "if pending.missing or pending.aligned_ms is None or",
        "if len(pending.missing) > 1 or pending.aligned_ms is None or",
    ),
    Mutation(
        "a checkpoint completes before its barrier is aligned",
        "runtime/master/coordinator.py",
        "if pending.missing or pending.aligned_ms is None or",
        "if pending.missing or",
    ),
    Mutation(
        "the newest checkpoints are subsumed",
        "runtime/master/coordinator.py",
        """surplus = self._completed[: -self._settings.num_retained]
        self._completed = self._completed[-self._settings.num_retained :]""",
        """surplus = self._completed[self._settings.num_retained :]
        self._completed = self._completed[: self._settings.num_retained]""",
    ),
    Mutation(
        "a savepoint completes without the commit of its companion",
        "runtime/master/coordinator.py",
        "if not is_alone and pending.epoch > self._committed_epoch:",
        "if False:",
    ),
    Mutation(
        "sinks are not rewound on a restart",
        "runtime/master/actions.py",
        "        sink.sink.rewind(epoch)",
        "        pass",
    ),
    Mutation(
        "slots restore after the take-over",
        "runtime/master/machine.py",
        "if claim.restores:",
        "if False:",
    ),
    Mutation(
        "a checkpoint has the position of the newest epoch",
        "runtime/master/checkpoints.py",
        "source_position=begun.epoch.step.end,",
        "source_position=max(self._begun.items())[1].epoch.step.end,",
    ),
    Mutation(
        "shared files that are still needed are deleted",
        "runtime/master/checkpoint_files.py",
        "return candidates - needed",
        "return candidates",
    ),
    Mutation(
        "a driver does not look for a newer run",
        "runtime/master/checkpoint_files.py",
        "self._successor = newest if newest != self.run else None",
        "self._successor = None",
    ),
    Mutation(
        "a checkpoint of a run that was superseded counts as the latest",
        "runtime/storage/runs.py",
        "return shared is None or epoch <= shared",
        "return True",
    ),
    Mutation(
        "a sink makes files of tasks visible that did not count",
        "runtime/sinks/epoch_folders.py",
        "for name in results:",
        "for name in self._area.names_in(pending):",
    ),
    Mutation(
        "a sink commits one epoch too many",
        "runtime/sinks/two_phase_files.py",
        "if number <= epoch:",
        "if number <= epoch + 1:",
    ),
    Mutation(
        "what was moved aside is not brought back",
        "runtime/sinks/two_phase_files.py",
        "            self._area.note(history)\n            self._bring_all_back(change)",
        "            self._area.note(history)",
    ),
    Mutation(
        "a sink takes the folder from a newer run",
        "runtime/sinks/run_area.py",
        "if found is not None and found.is_newer_than(wanted):",
        "if False:",
    ),
    Mutation(
        "a checkpoint is deleted with _metadata last",
        "runtime/storage/checkpoints.py",
        """                file_system.delete_file(f"{folder}/{METADATA}")""",
        "                pass",
    ),
    Mutation(
        "files are renamed before they are flushed",
        "runtime/storage/file_systems.py",
        """        flush_file(file_system, unfinished)
        file_system.move(unfinished, path)""",
        "        file_system.move(unfinished, path)",
    ),
    Mutation(
        "the folder of a completed checkpoint is not flushed",
        "runtime/storage/checkpoints.py",
        """METADATA}", data)
            flush_folder(file_system, folder)""",
        'METADATA}", data)',
    ),
)


#: Caught by histories of jobs in tasks that stay.
PIPELINED_MUTATIONS = (
    Mutation(
        "an attempt that has failed gets the next epoch",
        "runtime/pipelined/runner.py",
        "return request.link.driver == self._first.link.driver and not self._is_over.is_set()",
        "return True",
    ),
    Mutation(
        "what was read ahead is read again",
        "runtime/pipelined/runner.py",
        "        if read is None:",
        "        if read is None or not order.is_ahead:",
    ),
    Mutation(
        "an epoch does not wait for the tasks that have read ahead",
        "runtime/pipelined/runner.py",
        "            parts |= read[1]",
        "            pass",
    ),
    Mutation(
        "connections stay open at the end of an attempt",
        "runtime/pipelined/runner.py",
        "        self._crew.close()",
        "        pass",
    ),
    Mutation(
        "an attempt that is ended goes on",
        "runtime/pipelined/runner.py",
        """        self._is_over.set()
        self._crew.shut_down()""",
        "        self._crew.shut_down()",
    ),
    Mutation(
        "an epoch has ended when one of its parts has",
        "runtime/pipelined/crew.py",
        "return all(part in self._parts for part in parts)",
        "return any(part in self._parts for part in parts)",
    ),
    Mutation(
        "the reports of one part alone are counted",
        "runtime/pipelined/crew.py",
        "reports=tuple(chain.from_iterable(part.reports for part in ended)),",
        "reports=ended[0].reports,",
    ),
    Mutation(
        "only the writers of the last part count",
        "runtime/pipelined/crew.py",
        "found[results.sink].append(results)",
        "found[results.sink] = [results]",
    ),
    Mutation(
        "functions are sent to one process alone",
        "runtime/pipelined/crew.py",
        "codes = {} if self._known.get(process) is request.code else request.code.codes",
        "codes = {} if request.code in self._known.values() else request.code.codes",
    ),
    Mutation(
        "a task that stands still is not noticed",
        "runtime/pipelined/crew.py",
        """            self.answered.remove(process)
""",
        "",
    ),
    Mutation(
        "a partition beyond the tasks is read by nobody",
        "runtime/pipelined/vertices.py",
        "[part for part in parts if part[1] % count == number]",
        "[part for part in parts if part[1] == number]",
    ),
    Mutation(
        "every task reads every partition",
        "runtime/pipelined/vertices.py",
        "[part for part in parts if part[1] % count == number]",
        "parts",
    ),
    Mutation(
        "openings of one input alone are waited for",
        "runtime/pipelined/vertices.py",
        "openings=self.partitions(data) if self._plan",
        "openings=data[0].vertex.parallelism if self._plan",
    ),
    Mutation(
        "a slot does not wait for every slot before it",
        "runtime/pipelined/vertices.py",
        "else before.subtasks()",
        "else before.subtasks()[:1]",
    ),
    Mutation(
        "a slot does not wait for the barrier of every task",
        "runtime/pipelined/vertices.py",
        "yield from self._tasks if before.partitions is not None else before.subtasks()",
        "yield from self._tasks[:1] if before.partitions is not None else before.subtasks()",
    ),
    Mutation(
        "what is read ahead is sent nowhere",
        "runtime/pipelined/vertices.py",
        "pipe.vertex.target.operator_id = operator.operator_id",
        "pass",
    ),
    Mutation(
        "partitions that are read live are not waited for",
        "runtime/pipelined/programs.py",
        "            thread.end()",
        "            pass",
    ),
    Mutation(
        "the barrier comes before the frames",
        "runtime/pipelined/programs.py",
        """        results = loads(order.program).run(host, outputs)
        outputs.end_epoch(order.behind)""",
        """        outputs.end_epoch(order.behind)
        results = loads(order.program).run(host, outputs)""",
    ),
    Mutation(
        "a slot ends its epoch at the first barrier",
        "runtime/slots/inputs.py",
        "            self.waiting.remove(sender)",
        "            self.waiting.clear()",
    ),
    Mutation(
        "records are processed before all partitions are open",
        "runtime/slots/inputs.py",
        """            self._held.append(data)
            return []""",
        "            return [data]",
    ),
    Mutation(
        "records that came before the last opening are dropped",
        "runtime/slots/inputs.py",
        "return [data, NOTHING, *held]",
        "return [data, NOTHING]",
    ),
    Mutation(
        "openings are counted twice",
        "runtime/slots/inputs.py",
        "        self.openings -= 1",
        "        self.openings -= 2",
    ),
    Mutation(
        "a channel may be an epoch ahead of the others",
        "runtime/slots/inputs.py",
        "            self._gates[sender].epochs.release()",
        "            self._gates[sender].epochs.release(2)",
    ),
    Mutation(
        "a channel is never read on",
        "runtime/slots/inputs.py",
        "                self._gates[sender].frames.release()",
        "                pass",
    ),
    Mutation(
        "a live epoch is thought to be where it began",
        "runtime/master/planner.py",
        "return attrs.evolve(step, end=self._source.settled(step.end, ends)) if ends else step",
        "return step",
    ),
    Mutation(
        "a checkpoint has the position before a live epoch",
        "runtime/master/actions.py",
        """        epoch.step = self.input.planner.settled(number, epoch.step)
        self.sinks.prepare(number, epoch.results)""",
        """        self.sinks.prepare(number, epoch.results)
        self.input.planner.settled(number, epoch.step)""",
    ),
    Mutation(
        "a source that was read live stays where it was",
        "runtime/sources/source_set.py",
        """ends = {name: self._sources[name].reached(end[name], reached[name]) for name in reached}
        return {**end, **ends}""",
        """ends = {name: self._sources[name].reached(end[name], reached[name]) for name in reached}
        return {**ends, **end}""",
    ),
    Mutation(
        "what was read live once is read so again",
        "runtime/sources/source_set.py",
        "self._epoch = self._source.live(start) if self.is_on else None",
        "self._epoch = self._source.live(start) if self.is_on else self._epoch",
    ),
)
