"""The metadata of the state that a descriptor declares."""

from __future__ import annotations

from collections.abc import Callable

from pyflinkstate.api.state import StateDescriptor
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.backends.ttl import rules_of, with_timestamps
from pyflinkstate.backends.types import RegisteredStateMeta
from pyflinkstate.errors import ConfigurationError


def meta_of(
    descriptor: StateDescriptor, namespace_type: TypeInformation, clock: Callable[[], int]
) -> RegisteredStateMeta:
    """Return the metadata that a backend gives a state.

    Raises:
        ConfigurationError: it is not a descriptor.
    """
    if not isinstance(descriptor, StateDescriptor):
        raise ConfigurationError(f"a state descriptor is needed, not {descriptor!r}")
    ttl_ms = None
    if descriptor.is_ttl_enabled:
        assert descriptor.ttl_config is not None
        rules = rules_of(descriptor.ttl_config, clock)
        descriptor, ttl_ms = with_timestamps(descriptor, rules), rules.ttl_ms
    return RegisteredStateMeta(
        descriptor.name, descriptor.kind, descriptor.stored_type, namespace_type, ttl_ms
    )
