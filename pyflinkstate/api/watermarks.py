"""The bounds of watermarks and of timestamps, which a checkpoint keeps in 64 bits."""

from __future__ import annotations

from typing import Final

#: Flink's ``Long.MIN_VALUE``: no watermark has arrived yet.
NO_WATERMARK: Final = -(2**63)
#: Flink's ``Watermark.MAX_WATERMARK``: no more records will come.
MAX_WATERMARK: Final = 2**63 - 1
