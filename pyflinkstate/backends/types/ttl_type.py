"""The type of a value with the time of its last access (Flink: ``TtlValue``, ``TtlSerializer``)."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import StateValue

#: ``(timestamp in ms, user value)``, a plain tuple because it costs little.
TtlValue = tuple[int, StateValue]


@attrs.frozen
class TtlTypeInfo(TypeInformation):
    """A :data:`TtlValue` of user values of ``value_type``; None is a legal user value."""

    value_type: TypeInformation

    def check(self, value: StateValue) -> StateValue:
        timestamp_ms, user_value = value
        return timestamp_ms, None if user_value is None else self.value_type.check(user_value)

    def parts(self) -> tuple[TypeInformation, ...]:
        return (self.value_type,)

    def with_parts(self, parts: Sequence[TypeInformation]) -> TypeInformation:
        (value_type,) = parts
        return TtlTypeInfo(value_type)

    @property
    def name(self) -> str:
        return f"TTL({self.value_type})"
