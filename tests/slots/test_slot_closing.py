"""The end of a slot's function: it is closed whatever happens before, and the first error is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from slot_functions import HearOfCheckpoints
from support_slots import SLOT, deployment

from pyflinkstate.runtime.slots.slot_service import SlotHost, SlotService
from pyflinkstate.runtime.wire.messages import BeginEpoch, NotifyCheckpointComplete, SlotClosed


class FailsToClose(HearOfCheckpoints):
    """Fails in both."""

    def close(self) -> None:
        super().close()
        raise ConnectionResetError("the index is gone")


def closed(function: HearOfCheckpoints) -> SlotClosed:
    """Close a slot while an epoch runs, at whose end the function would hear of a checkpoint."""
    service = SlotService(SLOT, 0, SlotHost(lambda _: None, lambda run: run(), lambda: 0))
    assert service.deploy(deployment(function)) is None
    service.begin(BeginEpoch(0, 1, None))
    service.hear(NotifyCheckpointComplete(1))
    return service.close()


def test_a_function_hears_of_checkpoints_before_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "heard"
    assert closed(HearOfCheckpoints(str(path))) == SlotClosed()
    assert path.read_text() == "complete 1\nclosed\n"


@pytest.mark.parametrize("function", [HearOfCheckpoints, FailsToClose])
def test_a_function_that_fails_to_hear_is_closed_too(
    tmp_path: Path, function: type[HearOfCheckpoints], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "heard"
    error = closed(function(str(path), fails_at=1)).error
    assert error is not None
    assert "TimeoutError: the index cannot be switched" in str(error)
    assert path.read_text() == "complete 1\nclosed\n"
    assert ("the index is gone" in caplog.text) is (function is FailsToClose)
