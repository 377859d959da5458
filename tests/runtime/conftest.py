"""Fixtures of the runtime tests; how Hypothesis runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from support_slots import Driver

# No deadline: a test never depends on how fast the machine is.
settings.register_profile("pyflinkstate", deadline=None, print_blob=True)
settings.load_profile("pyflinkstate")


@pytest.fixture
def driver() -> Iterator[Driver]:
    """A driver's control server; whatever slots it has started end with the test."""
    made = Driver()
    yield made
    made.close()
