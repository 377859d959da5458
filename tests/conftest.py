"""What every test may use: the fixtures of both houses, which lie with what the tests share."""

from __future__ import annotations

import pytest

pytest_plugins = ["backend_fixtures", "runtime_fixtures"]
#: What is left open is shown there, and is no error: Spark leaves connections to its JVM open.
MAY_LEAVE_OPEN = ("spark", "full", "slow")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a quick test leaves open is an error, in that test or in the one during which it is collected."""
    for item in items:
        if not any(item.get_closest_marker(name) for name in MAY_LEAVE_OPEN):
            item.add_marker(pytest.mark.filterwarnings("error::ResourceWarning"))
