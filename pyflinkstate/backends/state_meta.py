"""What a backend knows of a state without its descriptor; it outlives the program in the checkpoint."""

from __future__ import annotations

import attrs

from pyflinkstate.api.descriptors import StateKind
from pyflinkstate.api.types import TypeInformation


@attrs.frozen
class RegisteredStateMeta:
    """What is known of a state without its descriptor (``RegisteredKeyValueStateBackendMetaInfo``)."""

    name: str
    kind: StateKind
    stored_type: TypeInformation
