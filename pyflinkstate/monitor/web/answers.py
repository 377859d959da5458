"""The forms of answers: JSON, and parts as they come."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from typing import Any

from starlette.responses import Response, StreamingResponse

from pyflinkstate.api.values import JsonObject


class JsonAnswer(Response):
    """JSON that may stand anywhere, even where somebody takes it for HTML."""

    media_type = "application/json"

    def render(self, content: JsonObject) -> bytes:
        """Return the bytes of a value."""
        text = json.dumps(content, separators=(",", ":"))
        return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").encode("ascii")


class StreamAnswer(StreamingResponse):
    """Parts as they come.

    Args:
        parts: what is sent.
        held: is entered before the first part, and left after the last one or when the peer has left.
        media_type: what the parts are together.
    """

    def __init__(
        self,
        parts: Iterator[bytes] | AsyncIterator[bytes],
        held: AbstractContextManager[object],
        media_type: str,
    ) -> None:
        super().__init__(parts, media_type=media_type)
        self._held = held

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the parts."""
        with self._held:
            await super().__call__(scope, receive, send)
