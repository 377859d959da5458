"""A checkpoint on disk with all kinds of state, and ways to damage it or to forge it."""

from __future__ import annotations

import copy
import json
import pickle
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from pyflinkstate import (
    FileSystemCheckpointStorage,
    ListStateDescriptor,
    MapStateDescriptor,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.format import CheckpointMetadata, OperatorState
from pyflinkstate.backends.format.framing import PREFIX_SIZE, encode_head, head_size
from pyflinkstate.backends.heap import HeapKeyedStateBackend, Timer
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.operator_state import DefaultOperatorStateBackend, assign_state
from pyflinkstate.runtime.master.checkpoint_files import SharedStateRegistry
from pyflinkstate.runtime.operators import StreamOperatorState
from pyflinkstate.runtime.storage import CheckpointFolders

JOB = "0123456789abcdef" * 2
KEY_TYPE = Types.TUPLE([Types.STRING(), Types.LONG()])
MAX_PARALLELISM = 4
OWN = KeyGroupRange(0, MAX_PARALLELISM - 1)

TOTAL = ValueStateDescriptor("total", Types.LONG())
#: Its values are pickles, but the program has declared them as bytes: nobody may load them.
PICKLES = ValueStateDescriptor("bytes", Types.PRIMITIVE_ARRAY(Types.BYTE()))
NAMES = MapStateDescriptor("names", Types.STRING(), Types.LIST(Types.DOUBLE()))
OFFSETS = ListStateDescriptor("offsets", Types.LONG())
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())

TRAP = pickle.dumps({"a": "pickle"})


def new_state() -> StreamOperatorState:
    keyed = HeapKeyedStateBackend(KEY_TYPE, OWN, MAX_PARALLELISM)
    return StreamOperatorState(keyed, DefaultOperatorStateBackend(), "zstd")


def fill(state: StreamOperatorState, first: int, count: int) -> None:
    backend = state.keyed
    for number in range(first, first + count):
        key = (f"k{number}", number)
        backend.set_current_key(key)
        backend.get_partitioned_state(TOTAL).update(number)
        backend.get_partitioned_state(PICKLES).update(TRAP)
        backend.get_partitioned_state(NAMES).put(str(number), [0.5, float(number)])
        backend.create_timer_queue("event_user-timers").add(Timer(number, key), backend.key_group_of(key))
    state.operator.get_list_state(OFFSETS).add_all([first, count])
    state.operator.get_broadcast_state(RULES).put(str(first), count)


@attrs.frozen
class Checkpoint:
    """A completed checkpoint: its storage, folder, and what it holds when nobody has touched it."""

    storage: CheckpointFolders
    folder: Path
    #: By path from the folder: the bytes that were written.
    files: dict[str, bytes]

    @classmethod
    def written(cls, root: Path) -> Checkpoint:
        """Write one: a full file and an increment in ``shared``, operator and raw state in the folder."""
        storage = CheckpointFolders(FileSystemCheckpointStorage(str(root), 0))
        state = new_state()
        state.track_changes()
        assert state.history is not None
        full = cls._snapshot(storage, state, 1, None)
        fill(state, 20, 5)
        increment = cls._snapshot(storage, state, 2, 1)
        chain = attrs.evolve(full.managed_keyed, increments=(increment.managed_keyed,))
        whole = attrs.evolve(increment, managed_keyed=chain)
        operators = (OperatorState("sums", 1, MAX_PARALLELISM, (whole,)),)
        counters, marks = {"records": 25}, {"sums": 7}
        made = CheckpointMetadata(2, JOB, "orders", 2, {"at": [1, 2]}, counters, 5, operators, marks)
        storage.complete(made)
        folder = root / JOB / "chk-2"
        paths = [path for path in (root / JOB).rglob("*") if path.is_file() and "chk-1" not in path.parts]
        return cls(storage, folder, {cls._name(folder, path): path.read_bytes() for path in paths})

    @staticmethod
    def _name(folder: Path, path: Path) -> str:
        return path.name if path.parent == folder else f"../shared/{path.name}"

    @staticmethod
    def _snapshot(
        storage: CheckpointFolders, state: StreamOperatorState, number: int, base: int | None
    ) -> Any:
        uri = storage.begin(JOB, number, shared=True)
        if number == 1:
            fill(state, 0, 20)
        assert state.history is not None
        changes = state.history.cut(number, base)
        outputs = state.raw_outputs()
        outputs.keyed.start_new_key_group(1)
        outputs.keyed.write(b"raw")
        outputs.operator.write(b"raw")
        shared = storage.streams(uri, shared_by=number)
        return state.snapshot(outputs, storage.streams(uri), shared, changes).finish()

    def put_back(self, names: set[str]) -> None:
        """Write the files again as they were."""
        (self.folder / "../shared").mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(exist_ok=True)
        for name in names:
            (self.folder / name).write_bytes(self.files[name])

    def names(self) -> list[str]:
        """Return the names of the files, in the same order whatever random parts they have."""
        return sorted(self.files, key=lambda name: (name != "_metadata", len(self.files[name]), name[:11]))

    def missing(self) -> set[str]:
        return {name for name in self.files if not (self.folder / name).exists()}

    def restore(self) -> dict[str, Any]:
        """Restore it as a slot does, ask for the declared states, and return all content."""
        metadata = self.storage.load(str(self.folder))
        state = new_state()
        found = metadata.operator("sums")
        assigned = assign_state(found.subtasks if found else (), 1, MAX_PARALLELISM, KEY_TYPE)[0]
        state.restore(assigned, self.storage.streams(str(self.folder)))
        return contents(state)

    def subsume(self) -> None:
        """Delete what the metadata says, as a job does that needs the checkpoint no more."""
        registry = SharedStateRegistry()
        registry.register_restored(self.storage.load(str(self.folder)))
        self.storage.discard(str(self.folder))
        self.storage.discard_shared(JOB, sorted(registry.unregister(2)))


def contents(state: StreamOperatorState) -> dict[str, Any]:
    backend = state.keyed
    for descriptor in (TOTAL, PICKLES, NAMES):
        backend.get_or_create_keyed_state(descriptor)
    found: dict[str, Any] = {
        name: dict(table.items()) for name, table in backend.registered_kv_states.items() if len(table)
    }
    for name, queue in backend.registered_queues.items():
        found[name] = sorted((timer.timestamp_ms, timer.key) for timer in queue.timers())
    found["offsets"] = list(state.operator.get_list_state(OFFSETS).get())
    found["rules"] = dict(state.operator.get_broadcast_state(RULES).items())
    found["raw"] = (state.raw_keyed, state.raw_operator)
    return found


# --- damage: bytes change, and nobody sees to the checksums --------------------------------------------


def damaged(data: bytes, seed: random.Random) -> bytes:
    """Return the bytes with something flipped, cut out, put in or cut off."""
    at = seed.randrange(len(data)) if data else 0
    size = seed.choice((1, 1, 1, 4, 100))
    noise = seed.randbytes(size)
    return seed.choice(
        [
            data[:at] + noise + data[at + size :],
            data[:at] + noise + data[at:],
            data[:at] + data[at + size :],
            data[:at],
            data[:at] + bytes([data[at] ^ (1 << seed.randrange(8))]) + data[at + 1 :] if data else b"\0",
        ]
    )


# --- forgery: the checksums are right ------------------------------------------------------------------

OUTSIDE = "0" * 32

NASTY: list[Any] = [
    *(None, True, -1, 0, 1, 3, 2**31, 2**63 - 1, 2**63, 2**64, 10**400, 1.5, float("inf"), "", "x", [], {}),
    *("PICKLED", ["LIST", "PICKLED"], ["TUPLE"], ["MAP", "LONG"], ["ROW", ["a", "a"], "LONG", "LONG"]),
    *(["TTL", "PICKLED"], ["EXTERNAL", "PICKLED"], ["PRIMITIVE_ARRAY", "PICKLED"], "TIME_WINDOW", "UNION"),
    *("/etc/passwd", f"../{OUTSIDE}", f"../../{OUTSIDE}", f"../shared/../../{OUTSIDE}", "..", "_metadata"),
    *(f"../shared/../../{'f' * 32}/shared/{OUTSIDE}", f"{OUTSIDE}/..", "../shared", "file:///etc/passwd"),
    *({"inline": "!"}, {"inline": "AAAA"}, [-1, 5, 0], [0, 2**40, 0], [2**62, 2**62, 0], [0, -5, 1]),
]


def nodes(content: Any) -> list[tuple[Any, Any]]:
    """Return each place in JSON: what holds it and under which name."""
    found = []
    names = content.keys() if isinstance(content, dict) else range(len(content))
    for name in names:
        found.append((content, name))
        if isinstance(content[name], (dict, list)):
            found += nodes(content[name])
    return found


def forged(content: Any, seed: random.Random) -> Any:
    """Return JSON in which something is another value, is gone, is there twice, or deep."""
    content = copy.deepcopy(content)
    for _ in range(seed.choice((1, 1, 1, 2, 3))):
        places = nodes(content)
        if not places:
            break
        holder, name = seed.choice(places)
        _forge_one(holder, name, seed)
    return content


def _forge_one(holder: Any, name: Any, seed: random.Random) -> None:
    what = seed.randrange(8)
    if what == 0:
        del holder[name]
    elif what == 1 and isinstance(holder, list):
        holder.insert(name, copy.deepcopy(holder[name]))
    elif what == 2 and isinstance(holder[name], int):
        holder[name] += seed.choice((-1, 1, 2**31, -(2**31)))
    elif what == 3:
        holder[name] = [holder[name]]
    elif what == 4 and isinstance(holder, dict):
        holder[str(seed.choice(NASTY))[:50]] = holder.pop(name)
    else:
        holder[name] = copy.deepcopy(seed.choice(NASTY))


def head_of(data: bytes) -> tuple[bytes, int, dict[str, Any], bytes]:
    """Return magic, version, content and the rest of a file with a head."""
    version = int.from_bytes(data[8:10], "big")
    size = head_size(data[:PREFIX_SIZE], data[:8], "file")
    return data[:8], version, json.loads(data[PREFIX_SIZE : size - 4]), data[size:]


def forge_metadata(checkpoint: Checkpoint, seed: random.Random) -> dict[str, bytes]:
    magic, version, content, _ = head_of(checkpoint.files["_metadata"])
    return {"_metadata": encode_head(magic, version, forged(content, seed))}


def forge_head(checkpoint: Checkpoint, seed: random.Random) -> dict[str, bytes]:
    """Forge the head of a state file, and let the metadata know where its sections are now."""
    name = seed.choice([name for name in checkpoint.names() if checkpoint.files[name][:3] == b"PFS"])
    if name == "_metadata":
        return forge_metadata(checkpoint, seed)
    magic, version, content, rest = head_of(checkpoint.files[name])
    data = encode_head(magic, version, forged(content, seed)) + rest
    moved = len(data) - len(checkpoint.files[name])
    change = lambda section: (section[0] + moved, *section[1:])  # noqa: E731
    return {name: data, "_metadata": _with_sections(checkpoint, name, change)}


def forge_section(checkpoint: Checkpoint, seed: random.Random) -> dict[str, bytes]:
    """Change bytes of the columns, and give the metadata the checksums that fit."""
    name = seed.choice(checkpoint.names()[1:])
    data = bytearray(checkpoint.files[name])
    begin = len(data) - len(head_of(bytes(data))[3]) if data[:3] == b"PFS" else 0
    for _ in range(seed.choice((1, 2, 8))):
        at = seed.randrange(begin, len(data))
        data[at] = seed.choice((0, 255, 127, data[at] ^ (1 << seed.randrange(8)), seed.randrange(256)))
    made = bytes(data)

    def resealed(section: list[int]) -> tuple[int, ...]:
        return section[0], section[1], zlib.crc32(made[section[0] : section[0] + section[1]])

    return {name: made, "_metadata": _with_sections(checkpoint, name, resealed)}


def _with_sections(
    checkpoint: Checkpoint, name: str, change: Callable[[list[int]], tuple[int, ...]]
) -> bytes:
    magic, version, content, _ = head_of(checkpoint.files["_metadata"])
    for holder, key in nodes(content):
        if key == "path" and holder[key] == name:
            for owner in _owners(content, holder):
                _change_sections(owner, change)
    return encode_head(magic, version, content)


def _owners(content: Any, stream: Any) -> list[Any]:
    return [holder for holder, key in nodes(content) if key == "stream" and holder[key] is stream]


def _change_sections(owner: Any, change: Callable[[list[int]], tuple[int, ...]]) -> None:
    for holder, key in nodes({**owner, "increments": None}):
        value = holder[key]
        if isinstance(value, list) and len(value) == 3 and all(type(part) is int for part in value):
            holder[key] = list(change(value))


FORGERIES = (forge_metadata, forge_metadata, forge_head, forge_section)
