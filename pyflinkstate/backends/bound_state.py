"""A state that is bound to the current key, as the wrappers of time to live call it at each access.

It is a compiled class and no protocol, so that these calls are native.
"""

from __future__ import annotations

from pyflinkstate.api.values import Stored


class BoundState:
    """What is stored under the current key and namespace."""

    __slots__ = ()

    def get_internal(self) -> Stored:
        """Return the stored value, or None."""
        raise NotImplementedError

    def update_internal(self, stored: Stored) -> None:
        """Store ``stored`` as it is; None clears the entry."""
        raise NotImplementedError
