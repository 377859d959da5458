"""The notebooks run from top to bottom, in a kernel of their own, and show tables and a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="make test-full installs it")
nbclient = pytest.importorskip("nbclient", reason="make test-full installs it")

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full,
    pytest.mark.timeout(280),
    pytest.mark.filterwarnings("ignore"),  # those of Jupyter's own packages
]


def name_of(path: Path) -> str:
    return path.stem


def shown(notebook: Any) -> list[str]:
    """Return the kinds of what the cells show, such as ``image/png``."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [kind for output in outputs for kind in output.get("data", ())]


def test_there_are_two() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["first_steps", "look_into_state"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_what_is_committed_has_no_results(path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)


@pytest.mark.usefixtures("no_slot_left")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_a_notebook_runs_and_shows_tables_and_a_plot(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    kinds = shown(notebook)
    assert kinds.count("text/html") >= 4
    assert kinds.count("image/png") == 1
