"""The soak program of many epochs takes a figure that rises for one, and no other."""

from __future__ import annotations

import soak_epochs


def test_a_figure_that_rises_after_the_first_epochs_is_found() -> None:
    epochs = range(0, 2000, 25)
    samples: soak_epochs.Samples = {
        "leaks: USS in MiB": [(epoch, 100 + epoch / 100) for epoch in epochs],
        "leaks: threads": [(epoch, 10 + epoch // 300) for epoch in epochs],
        "warms up: USS in MiB": [(epoch, min(epoch, 400)) for epoch in epochs],
        "saws: USS in MiB": [(epoch, 100 + epoch % 50) for epoch in epochs],
        "falls: descriptors": [(epoch, 40 - epoch // 500) for epoch in epochs],
        "one more: threads": [(epoch, 10 + (epoch > 1000)) for epoch in epochs],
    }
    found = soak_epochs.rising(samples, 500)
    assert [text.partition(":")[0] for text in found] == ["leaks", "leaks"]
