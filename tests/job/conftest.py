"""Jobs of these tests start their slots as forks of one process."""

from __future__ import annotations

import pytest
import slot_nursery

from pyflinkstate.runtime.tasks import slot_client


@pytest.fixture(autouse=True)
def slots_are_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start slots in milliseconds; ``slot_nursery`` says what is not as it is in a user's job."""
    monkeypatch.setattr(slot_client, "subprocess", slot_nursery)
