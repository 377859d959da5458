"""How a file sink writes a record (``pyflink.common.Encoder``)."""

from __future__ import annotations

import attrs

from pyflinkstate.api.serialization import check_charset


@attrs.frozen
class Encoder:
    """Writes each record as one line of text, as ``print()`` shows it.

    Raises:
        ConfigurationError: no charset has that name.
    """

    charset_name: str = attrs.field(default="UTF-8")

    @charset_name.validator
    def _check_charset(self, _: object, value: str) -> None:
        check_charset("Encoder", value)

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """Return an encoder of lines of text."""
        return Encoder(charset_name)
