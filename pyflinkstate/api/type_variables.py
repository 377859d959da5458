"""The parameters of generic classes. A parameter that is left out stands for any type, even in strict mode.

The names are those of Flink's Java classes; a type that is only read is covariant, one that is only written
contravariant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Type checkers know this module even if it is not installed. At run time a default has no meaning.
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
    T_co = TypeVar("T_co", covariant=True, default=Any)
    K = TypeVar("K", default=Any)
    K_co = TypeVar("K_co", covariant=True, default=Any)
    L = TypeVar("L", default=Any)
    R = TypeVar("R", default=Any)
    S = TypeVar("S", default=Any)
    V = TypeVar("V", default=Any)
    W = TypeVar("W", default=Any)
    W_co = TypeVar("W_co", covariant=True, default=Any)
    W_contra = TypeVar("W_contra", contravariant=True, default=Any)
    KEY = TypeVar("KEY", contravariant=True, default=Any)
    IN = TypeVar("IN", contravariant=True, default=Any)
    IN1 = TypeVar("IN1", contravariant=True, default=Any)
    IN2 = TypeVar("IN2", contravariant=True, default=Any)
    ACC = TypeVar("ACC", default=Any)
    OUT = TypeVar("OUT", covariant=True, default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")
    T_co = TypeVar("T_co", covariant=True)
    K = TypeVar("K")
    K_co = TypeVar("K_co", covariant=True)
    L = TypeVar("L")
    R = TypeVar("R")
    S = TypeVar("S")
    V = TypeVar("V")
    W = TypeVar("W")
    W_co = TypeVar("W_co", covariant=True)
    W_contra = TypeVar("W_contra", contravariant=True)
    KEY = TypeVar("KEY", contravariant=True)
    IN = TypeVar("IN", contravariant=True)
    IN1 = TypeVar("IN1", contravariant=True)
    IN2 = TypeVar("IN2", contravariant=True)
    ACC = TypeVar("ACC")
    OUT = TypeVar("OUT", covariant=True)
