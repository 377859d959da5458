"""The partitioner and the key selector of ``partition_custom``: opened and closed together."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from pyflinkstate import KeySelector, Partitioner, RuntimeContext
from pyflinkstate.runtime.operators import OperatorContext
from pyflinkstate.runtime.plan.nodes import CustomPartition

CONTEXT = OperatorContext("partition", 0, 1, 128, 0)


class ByLength(Partitioner):
    """Notes what is called, and may fail to close."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails
        self.calls: list[str] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        self.calls.append("open")

    def partition(self, key: str, num_partitions: int) -> int:
        return len(key) % num_partitions

    def close(self) -> None:
        self.calls.append("close")
        if self.fails:
            raise TimeoutError("flush took too long")


class Name(KeySelector):
    """Notes what is called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        self.calls.append("open")

    def get_key(self, value: dict[str, str]) -> str:
        return value["name"]

    def close(self) -> None:
        self.calls.append("close")


@pytest.mark.parametrize("fails", [False, True])
def test_both_are_opened_and_closed_even_if_the_partitioner_does_not_close(fails: bool) -> None:
    partitioner, selector = ByLength(fails), Name()
    function = CustomPartition(partitioner, selector, 4)
    function.open(CONTEXT)
    assert function.map({"name": "ann-a"}) == (1, {"name": "ann-a"})
    with pytest.raises(TimeoutError, match="flush took too long") if fails else nullcontext():
        function.close()
    assert partitioner.calls == selector.calls == ["open", "close"]
