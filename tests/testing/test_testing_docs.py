"""The code blocks of ``docs/testing.md`` run, one after the other, as one program."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


def test_the_code_blocks_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, Any] = {"__name__": "testing_docs"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"testing.md, block {number}", "exec"), names)
