"""What a program brings along, where no Spark is needed."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from pyflinkstate.runtime.spark.python_files import PythonFiles


def test_the_next_session_of_a_program_gets_its_archives_too(tmp_path: Path) -> None:
    archive = tmp_path / "data.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("data.txt", "from a file")
    shipped: list[str] = []
    for _ in range(2):
        context: Any = MagicMock(addArchive=shipped.append)
        PythonFiles(context).add_archive(str(archive), "data")
    assert len(shipped) == 2
    assert shipped[0] == shipped[1]
    assert shipped[0].endswith("-data.zip#data")
