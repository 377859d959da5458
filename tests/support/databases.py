"""Databases of the tests of connectors."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs


@attrs.frozen
class Database:
    """A database of one of the kinds."""

    url: str
    connect: Callable[[], Any]

    def run(self, statement: str) -> list[Any]:
        with closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            rows = cursor.fetchall() if cursor.description else []
            connection.commit()
            return list(rows)


def sqlite_database(folder: Path) -> Database:
    path = folder / "data.sqlite"
    return Database(f"sqlite:///{path}", lambda: sqlite3.connect(path))
