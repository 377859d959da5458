"""Closing several things: each is closed, the first error is the one to report, and others are logged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pyflinkstate.errors import BadRecordError
from pyflinkstate.runtime.operators import close_all, closed_at_end


class Closing:
    """What is to be closed, and what has been."""

    def __init__(self) -> None:
        self.closed: list[str] = []

    def of(self, name: str, error: BaseException | None = None) -> Callable[[], None]:
        def close() -> None:
            self.closed.append(name)
            if error is not None:
                raise error

        return close


@pytest.fixture
def closing() -> Closing:
    return Closing()


def test_what_closes_says_nothing(closing: Closing, caplog: pytest.LogCaptureFixture) -> None:
    close_all()
    close_all(closing.of("a"), closing.of("b"))
    with closed_at_end(closing.of("c")):
        assert closing.closed == ["a", "b"]
    assert closing.closed == ["a", "b", "c"]
    assert caplog.text == ""


def test_all_are_closed_and_the_first_error_is_raised(
    closing: Closing, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(LookupError, match="first"):
        close_all(
            closing.of("a"),
            closing.of("b", LookupError("first")),
            closing.of("c", SystemExit("second")),
            closing.of("d"),
            closing.of("e", OSError("third")),
        )
    assert closing.closed == ["a", "b", "c", "d", "e"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    for text in ("SystemExit: second", "OSError: third"):
        assert f"close() failed after another error: {text}" in caplog.text


def test_an_error_of_close_alone_is_raised(closing: Closing, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(OSError, match="disk full"), closed_at_end(closing.of("a", OSError("disk full"))):
        pass
    assert caplog.text == ""


def test_an_error_of_the_block_is_kept(closing: Closing, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(BadRecordError, match="bad"), closed_at_end(closing.of("a", OSError("disk full"))):
        raise BadRecordError("bad")
    assert closing.closed == ["a"]
    assert "close() failed after another error: OSError: disk full" in caplog.text
