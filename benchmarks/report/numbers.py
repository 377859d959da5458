"""How figures are printed."""

from __future__ import annotations

import math


def shown(value: float) -> str:
    """Return a figure with three digits that count: ``"1,230,000"``, ``"12.3"``, ``"0.012"``."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    rounded = round(value, 2 - magnitude)
    return f"{rounded:,.{min(max(2 - magnitude, 0), 3 if abs(value) >= 0.1 else 6)}f}"


def asked(value: float) -> str:
    """Return what is asked, as it was written: ``"1,500,000"``, ``"0.85"``."""
    return shown(value) if isinstance(value, bool) else f"{value:,}"
