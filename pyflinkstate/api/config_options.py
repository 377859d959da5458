"""The options that a program defines itself (``pyflink.common.config_options``)."""

from __future__ import annotations

from typing import Generic

import attrs

from pyflinkstate.api.type_variables import T
from pyflinkstate.errors import ConfigurationError


@attrs.frozen
class ConfigOption(Generic[T]):
    """A key, the type of its values, and a default value. :class:`ConfigOptions` makes it.

    Attributes:
        key: its key in a ``Configuration``.
        value_type: the type of its values.
        default_value: the default value; None if there is none.
    """

    key: str
    value_type: type
    default_value: T | None = None


class ConfigOptions:
    """Builds options.

    >>> ConfigOptions.key("application.parallelism").int_type().default_value(100).default_value
    100
    """

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        """Return a builder of an option with this key."""
        return ConfigOptions.OptionBuilder(key)

    @attrs.frozen
    class OptionBuilder:
        """The builder of an option after its key: the type is next."""

        key: str

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder[bool]:
            """Choose boolean values."""
            return ConfigOptions.TypedConfigOptionBuilder(self.key, bool)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Choose whole numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self.key, int)

        long_type = int_type

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Choose numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self.key, float)

        double_type = float_type

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            """Choose strings."""
            return ConfigOptions.TypedConfigOptionBuilder(self.key, str)

    @attrs.frozen
    class TypedConfigOptionBuilder(Generic[T]):
        """The builder of an option after its type: the default is last."""

        key: str
        value_type: type

        def default_value(self, value: T) -> ConfigOption[T]:
            """Return the option with a default.

            Raises:
                ConfigurationError: the default is of another type.
            """
            takes = (int, float) if self.value_type is float else self.value_type
            if not isinstance(value, takes) or (isinstance(value, bool) and self.value_type is not bool):
                raise ConfigurationError(
                    f"option {self.key!r}: its default is a {self.value_type.__name__}, not {value!r}"
                )
            return ConfigOption(self.key, self.value_type, value)

        def no_default_value(self) -> ConfigOption[T]:
            """Return the option without a default."""
            return ConfigOption(self.key, self.value_type)
