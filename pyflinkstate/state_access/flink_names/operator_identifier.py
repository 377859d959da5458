"""How Flink names the operator of a savepoint."""

from __future__ import annotations

import attrs


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
