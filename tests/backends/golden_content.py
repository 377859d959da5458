"""What the golden state file holds. It was written once, by release 0.1.0:

    python tests/backends/golden_content.py

Never write it again under the same name: a later release must read what an earlier one wrote. A new
format version gets a file of its own beside it.
"""

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

from backend_support import Mean, make_backend, state_of, take_snapshot

from pyflinkstate.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from pyflinkstate.api.types import Types
from pyflinkstate.backends.key_groups import KeyGroupRange
from pyflinkstate.backends.state_handles import ByteStreamStateHandle, KeyGroupsStateHandle, Section

GOLDEN = Path(__file__).parent / "golden"
KEYS = ["flink", "été", "\U0001f600", ""]

ROW = Types.TUPLE([Types.BIG_DEC(), Types.SQL_DATE(), Types.SQL_TIMESTAMP(), Types.BIG_INT(), Types.FLOAT()])

DESCRIPTORS: dict[str, StateDescriptor] = {
    "value": ValueStateDescriptor("value", Types.LONG()),
    "row": ValueStateDescriptor("row", ROW),
    "list": ListStateDescriptor("list", Types.STRING()),
    "map": MapStateDescriptor("map", Types.STRING(), Types.LIST(Types.DOUBLE())),
    "reducing": ReducingStateDescriptor("reducing", max, Types.BIG_INT()),
    "aggregating": AggregatingStateDescriptor("aggregating", Mean(), Types.LIST(Types.LONG())),
    "pickled value": ValueStateDescriptor("pickled value"),
    "pickled map": MapStateDescriptor("pickled map"),
}

#: What is stored under each key but the last, which holds a value alone.
STORED = {
    "value": -(2**63),
    "row": (Decimal("1.10"), date(2024, 2, 29), datetime(2024, 2, 29, 1, 2, 3, 4), 10**30, 0.5),
    "list": ["", "日本", "\U0001f600"],
    "map": {"a": [0.1], "none": None},
    "reducing": 10**25,
    "aggregating": [3, 2],
    "pickled value": {"set": {1, 2}, "tuple": (None, b"\x00")},
    "pickled map": {None: None, (1, "a"): [1.5]},
}


def write_golden() -> None:
    """Write the file and, as JSON, what its handle says."""
    backend = make_backend(Types.STRING())
    for key in KEYS[:-1]:
        state_of(backend, DESCRIPTORS["value"], key).update(STORED["value"])
        state_of(backend, DESCRIPTORS["row"], key).update(STORED["row"])
        state_of(backend, DESCRIPTORS["list"], key).update(STORED["list"])
        state_of(backend, DESCRIPTORS["map"], key).put_all(STORED["map"])
        state_of(backend, DESCRIPTORS["reducing"], key).add(STORED["reducing"])
        state_of(backend, DESCRIPTORS["aggregating"], key).add(1)
        state_of(backend, DESCRIPTORS["aggregating"], key).add(2)
        state_of(backend, DESCRIPTORS["pickled value"], key).update(STORED["pickled value"])
        state_of(backend, DESCRIPTORS["pickled map"], key).put_all(STORED["pickled map"])
    state_of(backend, DESCRIPTORS["value"], KEYS[-1]).update(7)
    handle = take_snapshot(backend)
    (GOLDEN / "state_v1.bin").write_bytes(handle.stream.data)
    sections = {
        name: {
            key_group: [section.offset, section.length, section.checksum]
            for key_group, section in groups.items()
        }
        for name, groups in handle.sections.items()
    }
    (GOLDEN / "state_v1.json").write_text(json.dumps(sections, indent=1) + "\n")


def read_golden() -> KeyGroupsStateHandle:
    """Return the handle of the golden file."""
    sections = {
        name: {int(key_group): Section(*place) for key_group, place in groups.items()}
        for name, groups in json.loads((GOLDEN / "state_v1.json").read_text()).items()
    }
    stream = ByteStreamStateHandle((GOLDEN / "state_v1.bin").read_bytes())
    return KeyGroupsStateHandle(KeyGroupRange(0, 127), stream, sections)


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    write_golden()
