"""One state of a running job, readable like that of a checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import attrs
import pyarrow as pa

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types import RegisteredStateMeta, sealed, unsealed
from pyflinkstate.runtime.queries import LiveEntries
from pyflinkstate.state_access.key_space import Group, KeySpace
from pyflinkstate.state_access.pickles import Load, loader
from pyflinkstate.state_access.views import View


@attrs.define
class LiveState:
    """The batches that slots have sent of one state.

    Attributes:
        keys: the operator's keys.
        metas: the state by its name, with its pickles sealed.
        batches: the batches of the state; read once if they come from slots.
    """

    keys: KeySpace
    metas: dict[str, RegisteredStateMeta]
    batches: Iterable[pa.RecordBatch] = attrs.field(repr=False)

    #: The batches have no order, and are numbered in place of key groups.
    is_spread_anew = True
    allow_pickle = False

    @property
    def key_type(self) -> TypeInformation:
        """The declared type of keys."""
        return self.keys.key_type

    @property
    def load(self) -> Load:
        """The function that loads pickled keys: plain values only."""
        return loader(self.allow_pickle)

    def declared(self, meta: RegisteredStateMeta) -> RegisteredStateMeta:
        """Return a state with its pickles as the program declared them."""
        return attrs.evolve(meta, stored_type=unsealed(meta.stored_type))

    def ranges(self, number: int | None = None) -> list[KeyGroupRange]:
        """Return the one range of all key groups."""
        return [KeyGroupRange(0, self.keys.max_parallelism - 1)]

    def groups(self, name: str, wanted: Collection[int] | None = None) -> Iterator[Group]:
        """Yield the batches; the slots have picked the wanted keys."""
        return enumerate(self.batches)


def view_of(entries: LiveEntries, batches: Iterable[pa.RecordBatch]) -> View:
    """Return the view of the state that slots have sent in batches."""
    operator, meta = entries.operator, entries.meta
    keys = KeySpace(operator.operator_id, operator.node.key_type, operator.max_parallelism)
    metas = {meta.name: attrs.evolve(meta, stored_type=sealed(meta.stored_type))}
    lengths = {} if meta.ttl_ms is None else {meta.name: meta.ttl_ms}
    return View(LiveState(keys, metas, batches), None, entries.now_ms, lengths)
