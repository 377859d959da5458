"""Random draws of a simulation, each by its name.

A seed is to keep its meaning while the simulation and the product change. So each kind of draw has a stream
of its own, made from the seed and the name of the draw. One more draw shifts those of the same name only.
"""

from __future__ import annotations

import random


class Draws:
    """The streams of one history.

    >>> Draws(7)("delay").random() == Draws(7)("delay").random() != Draws(7)("size").random()
    True
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._streams: dict[str, random.Random] = {}

    def __call__(self, name: str) -> random.Random:
        """Return the stream of a draw."""
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = random.Random(f"{self._seed} {name}")
        return stream
