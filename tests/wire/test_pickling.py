"""What is pickled by value is, where it is loaded, what it was."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable

import pytest

from pyflinkstate.runtime.wire import dumps_by_value, loads


def outer() -> Callable[[], Callable[[], float]]:
    class Local:
        def divide(self) -> float:
            return 1 / 0

    def made() -> Callable[[], float]:
        return lambda: Local().divide()

    return made


class TestFileNames:
    """cloudpickle leaves them out since 3.1.3; errors and tracebacks need them."""

    def test_a_function_and_those_inside_it_keep_their_file(self) -> None:
        made = loads(dumps_by_value(outer()))
        assert made.__code__.co_filename == __file__
        assert made().__code__.co_filename == __file__

    def test_a_function_keeps_the_file_that_its_code_names(self) -> None:
        names: dict[str, Callable[[], int]] = {}
        exec(compile("def cell():\n    return 1", "<ipython-input-1>", "exec"), names)
        cell = loads(dumps_by_value(names["cell"]))
        assert cell.__code__.co_filename == "<ipython-input-1>"
        assert cell() == 1

    def test_a_traceback_shows_the_line_that_failed(self) -> None:
        divide = loads(dumps_by_value(outer()))()
        with pytest.raises(ZeroDivisionError) as caught:
            divide()
        last = traceback.extract_tb(caught.value.__traceback__)[-1]
        assert last.filename == __file__
        assert last.line == linecache.getline(__file__, last.lineno or 0).strip() == "return 1 / 0"
