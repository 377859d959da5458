"""The module that ``python -m`` runs in a slot's process. Nothing imports it, or it would be loaded twice."""

from __future__ import annotations

from pyflinkstate.runtime.slots.slot import main

if __name__ == "__main__":
    main()
