"""How savepoints and their operators are named in Flink's calls."""

from __future__ import annotations

import os

import attrs

from pyflinkstate.errors import ConfigurationError


@attrs.frozen
class OperatorIdentifier:
    """An operator of a savepoint (``org.apache.flink.state.api.OperatorIdentifier``).

    Operators are known by their uids here, so there are no hashes of uids (``forUidHash``).

    Attributes:
        uid: the operator's uid.
    """

    uid: str

    @staticmethod
    def for_uid(uid: str) -> OperatorIdentifier:
        """Return the operator with this uid."""
        return OperatorIdentifier(uid)


def uid_of(operator: str | OperatorIdentifier) -> str:
    """Return the uid of an operator that is named either way."""
    return operator.uid if isinstance(operator, OperatorIdentifier) else operator


def check_path_first(call: str, path: object) -> None:
    """Raise ``ConfigurationError`` unless ``path`` is one: Flink's calls take an environment before it."""
    if not isinstance(path, (str, os.PathLike)):
        raise ConfigurationError(
            f"{call} takes the path of a savepoint first, not {type(path).__name__}: it needs no environment "
            f"and no state backend"
        )
