"""Rows whose class has a descriptor for each name."""

from __future__ import annotations

import gc

import pytest

from pyflinkstate.runtime.spark import row_batches


def test_a_collection_of_garbage_takes_no_descriptor_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python clears what a class has when it collects the class, which nobody may hold any more by then."""
    is_free = row_batches._is_free

    def collecting(name: str) -> bool:
        gc.collect()
        return is_free(name)

    monkeypatch.setattr(row_batches, "_is_free", collecting)
    gc.freeze()  # what is there already need not be looked at each time
    try:
        row = row_batches.row_maker(("first_of_three", "second", "third"))((1, 2, 3))
    finally:
        gc.unfreeze()
    assert (row.first_of_three, row.second, row.third) == (1, 2, 3)
