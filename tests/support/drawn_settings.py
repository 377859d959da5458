"""Settings of checkpoints for simulations, drawn as the rows of the table say."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from pyflinkstate.runtime.settings import CheckpointSettings, rows_of


def drawn_settings(draw: Callable[[str], Random]) -> dict[str, Any]:
    """Return some value for every field of ``CheckpointSettings``; each is drawn by its name."""
    return {name: _drawn(draw(name), row.drawn) for name, row in rows_of(CheckpointSettings).items()}


def _drawn(random: Random, values: tuple[Any, ...] | float) -> Any:
    return random.random() < values if isinstance(values, float) else random.choice(values)
