"""How a file sink writes a record (``pyflink.common.Encoder``)."""

from __future__ import annotations

import codecs

import attrs

from pyflinkstate.errors import ConfigurationError


@attrs.frozen
class Encoder:
    """Writes each record as one line of text, as ``print()`` shows it.

    Raises:
        ConfigurationError: no charset has that name.
    """

    charset_name: str = attrs.field(default="UTF-8")

    @charset_name.validator
    def _check_charset(self, _: object, value: str) -> None:
        try:
            codecs.lookup(value)
        except (LookupError, TypeError) as error:
            raise ConfigurationError(f"Encoder: there is no charset {value!r}") from error

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """Return an encoder of lines of text."""
        return Encoder(charset_name)
