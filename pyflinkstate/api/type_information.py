"""The base of all type information, and the error for a value that does not fit.

A type has one duty here: :meth:`TypeInformation.check` returns the value as it will be after a restore, or
raises ``ValueError`` saying why it does not fit. Checking on the way in means that no bad value is
discovered by a checkpoint, minutes later. How a type is written lives in
``pyflinkstate.backends.types``.

``str`` of a type spells it as ``Types`` does, which is what errors show; ``repr`` prints it as PyFlink does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias

import attrs

from pyflinkstate.api.checks import safe_repr
from pyflinkstate.api.values import InternalValue, T, T_co, TypedValue


@attrs.frozen(repr=False)
class TypeInformation(Generic[T_co]):
    """The base of all types. Its own ``check`` accepts everything."""

    def check(self, value: Any) -> T_co:
        """Return ``value`` in the form that state keeps.

        Raises:
            ValueError: the value does not fit; the message says why.
        """
        checked: T_co = value
        return checked

    def parts(self) -> tuple[TypeInformation, ...]:
        """Return the types that this one is made of, in order; a type without parts returns ``()``."""
        return ()

    def with_parts(self, parts: Sequence[TypeInformation]) -> TypeInformation:
        """Return this type with its parts replaced by ``parts``, of which there must be as many."""
        return self

    def has_floats(self) -> bool:
        """Return whether a value contains 32-bit numbers: ``FLOAT``."""
        return any(part.has_floats() for part in self.parts())

    def rounded(self, value: Any) -> T_co:
        """Return a value of this type with its ``FLOAT`` numbers rounded to 32 bits.

        State keeps them unrounded, as PyFlink's does, also the keys of a value that is a map. Keys,
        namespaces and the user keys of map state and broadcast state are rounded, because they must be found
        again, and so are records that a source converts.
        """
        rounded: T_co = value
        return rounded

    @property
    def check_key(self) -> Callable[[TypedValue], T_co]:
        """Return the check for values that must be found again, such as keys: :meth:`check`, and rounding."""
        return self._check_and_round if self.has_floats() else self.check

    def _check_and_round(self, value: TypedValue) -> T_co:
        return self.rounded(self.check(value))

    @property
    def name(self) -> str:
        """The name as ``Types`` spells it, such as ``LONG`` or ``LIST(STRING)``."""
        return type(self).__name__

    @property
    def kind(self) -> str:
        """The name of a type without parts in a checkpoint, such as ``LONG``; empty for a type with parts."""
        return ""

    def need_conversion(self) -> bool:
        """Return whether PyFlink hands values to the JVM in another form."""
        return False

    def to_internal_type(self, obj: Any) -> InternalValue:
        """Return the form in which PyFlink hands a value to the JVM."""
        return obj

    def from_internal_type(self, obj: Any) -> TypedValue:
        """Return the value that :meth:`to_internal_type` was given."""
        return obj

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return type(self).__name__


#: What results are declared as: a type, or a list of types, which stands for a row of them as in PyFlink.
OutputType: TypeAlias = TypeInformation[T] | list[TypeInformation]


def misfit(value: object, name: str) -> ValueError:
    """Return the error for a value that is not of type ``name``."""
    return ValueError(f"{safe_repr(value)} ({type(value).__name__}) does not fit {name}")
