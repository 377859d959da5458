"""The README's first program does what the README says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()


@pytest.mark.spark
@pytest.mark.usefixtures("spark", "no_slot_left")
def test_the_first_program_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    program = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    output = re.search(r"```text\n(.*?) {3,}\(one on each line\)", README, re.DOTALL)
    assert program is not None
    assert output is not None
    exec(compile(program[1], "README.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.splitlines() == re.split(" {3}", output[1].strip())


def test_the_first_thirty_lines_say_it_all() -> None:
    beginning = "\n".join(README.splitlines()[:30])
    for part in (
        "```python",
        "```text",
        "`make demo`",
        "`make test`",
        "**Guaranteed**",
        "**Not guaranteed**",
    ):
        assert part in beginning
