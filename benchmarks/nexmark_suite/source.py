"""The generator as a source of this library: any partition of an epoch makes its own part of the events."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import attrs

from nexmark_suite.events import Event
from nexmark_suite.generator import GeneratorConfig, events_between
from pyflinkstate import Available, Offset, Reject, Source, SplitEpoch
from pyflinkstate.errors import IncompatibleCheckpointError

#: The configuration, and the positions of the first event and of the one after the last.
EventSplit = tuple[GeneratorConfig, int, int]


@attrs.frozen
class NexmarkSource(Source):
    """The events of a generator.

    Args:
        config: decides the events.
        partitions: how many tasks read an epoch. Each reads a contiguous part of it, so that every subtask
            sees the events in their order.
        events_per_epoch: with checkpoints, the number of events in one epoch.
    """

    config: GeneratorConfig
    partitions: int = 1
    events_per_epoch: int = 100_000
    is_bounded = True

    def initial_offset(self) -> Offset:
        """See :class:`Source`."""
        return self._offset(0)

    def latest_offset(self, start: Offset, whole: bool) -> Available:
        """See :class:`Source`."""
        if start["generator"] != attrs.asdict(self.config):
            raise IncompatibleCheckpointError(
                f"the checkpoint has read events of {start['generator']}, not of {self.config}: restore it "
                f"with the same settings"
            )
        stop = self.config.events
        end = stop if whole else min(start["next"] + self.events_per_epoch, stop)
        return Available(self._offset(end), end == stop)

    def plan(self, start: Offset, end: Offset) -> SplitEpoch:
        """See :class:`Source`."""
        first, length = start["next"], end["next"] - start["next"]
        cuts = [first + length * part // self.partitions for part in range(self.partitions + 1)]
        splits = [(self.config, begin, stop) for begin, stop in itertools.pairwise(cuts)]
        return SplitEpoch(splits, _read, is_fresh=True)

    def _offset(self, position: int) -> Offset:
        return {"generator": attrs.asdict(self.config), "next": position}


def _read(split: EventSplit, _: Reject) -> Iterable[Event]:
    return events_between(*split)
