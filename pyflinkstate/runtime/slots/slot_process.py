"""What ``python -m`` runs as a slot's process. Nothing imports it, else it would be loaded twice."""

from __future__ import annotations

from pyflinkstate.runtime.slots.slot import main

if __name__ == "__main__":
    main()
