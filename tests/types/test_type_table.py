"""The table of types: every type that a program can declare has a row, and one walk finds all of it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from pyflinkstate.api import basic_types, composite_types, windows
from pyflinkstate.api.type_information import TypeInformation
from pyflinkstate.api.types import ExternalTypeInfo, LocalTimeTypeInfo, Types
from pyflinkstate.backends.types.codec import walk
from pyflinkstate.backends.types.columns import arrow_type, decode_column, encode_column
from pyflinkstate.backends.types.composites import COMPOSITES
from pyflinkstate.backends.types.names import type_from_json, type_to_json
from pyflinkstate.backends.types.pickles import SEALED, SealedPickles
from pyflinkstate.backends.types.table import OF_NAME, codec_of, find_codec, has_own_codec
from pyflinkstate.backends.types.ttl_type import TtlTypeInfo

LONG, STRING = Types.LONG(), Types.STRING()

#: What the factories of types with parts are called with. One that is missing here fails the test.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "PRIMITIVE_ARRAY": (LONG,),
    "BASIC_ARRAY": (STRING,),
    "OBJECT_ARRAY": (Types.LIST(LONG),),
    "LIST": (STRING,),
    "MAP": (STRING, LONG),
    "TUPLE": ([LONG, STRING],),
    "ROW": ([LONG, STRING],),
    "ROW_NAMED": (["a", "b"], [LONG, STRING]),
}


def made(name: str) -> TypeInformation:
    factory = getattr(Types, name)
    arguments = ARGUMENTS[name] if inspect.signature(factory).parameters else ()
    type_info: TypeInformation = factory(*arguments)
    return type_info


FACTORIES = [name for name in vars(Types) if not name.startswith("_")]
DECLARED = [made(name) for name in FACTORIES]
OTHERS = [
    *map(LocalTimeTypeInfo, LocalTimeTypeInfo.TimeType),
    ExternalTypeInfo(STRING),
    TtlTypeInfo(LONG),
    Types.PRIMITIVE_ARRAY(Types.BYTE()),
    windows.TimeWindowSerializer(),
    windows.CountWindowSerializer(),
    windows.GlobalWindowSerializer(),
]
ALL = [*DECLARED, *OTHERS]


class Own(TypeInformation):
    """A type of the user's, of which nothing is known."""


@pytest.mark.parametrize("name", FACTORIES)
def test_every_type_that_can_be_declared_has_a_row(name: str) -> None:
    assert has_own_codec(made(name)), f"Types.{name} needs a row in pyflinkstate/backends/types"


@pytest.mark.parametrize("module", [basic_types, composite_types], ids=lambda module: module.__name__)
def test_every_class_of_types_is_made_by_one_that_is_tested(module: Any) -> None:
    """A new class of types that no factory makes would be forgotten otherwise."""
    classes = {cls for cls in vars(module).values() if inspect.isclass(cls)}
    concrete = {cls for cls in classes if issubclass(cls, TypeInformation) and cls.__name__[0] != "_"}
    bases = {TypeInformation, basic_types.AtomicTypeInfo, composite_types.ArrayTypeInfo}
    makers = {basic_types.SqlTimeTypeInfo}
    assert concrete - bases - makers <= {type(type_info) for type_info in ALL}


@pytest.mark.parametrize("type_info", ALL, ids=str)
def test_a_row_is_whole(type_info: TypeInformation) -> None:
    codec = codec_of(type_info)
    assert OF_NAME[codec.name] is codec
    assert type_from_json(type_to_json(type_info)) == type_info
    assert decode_column(type_info, encode_column(type_info, [None, None])) == [None, None]
    assert arrow_type(type_info) == encode_column(type_info, []).type


@pytest.mark.parametrize("type_info", ALL, ids=str)
def test_a_type_is_made_of_its_parts(type_info: TypeInformation) -> None:
    assert type_info.with_parts(type_info.parts()) == type_info
    assert walk(type_info, lambda part, parts: part.with_parts(parts)) == type_info


@pytest.mark.parametrize("cls", COMPOSITES)
def test_other_parts_make_another_type_of_the_same_row(cls: type[TypeInformation]) -> None:
    (type_info,) = [found for found in ALL if type(found) is cls and not found.kind][:1]
    others = [Types.INT() for _ in type_info.parts()]
    other = type_info.with_parts(others)
    assert list(other.parts()) == others
    assert codec_of(other) is codec_of(type_info)
    assert other != type_info


def test_the_walk_goes_from_the_inside_out() -> None:
    seen: list[str] = []

    def visit(type_info: TypeInformation, parts: list[int]) -> int:
        seen.append(str(type_info))
        return 1 + sum(parts)

    assert walk(Types.MAP(STRING, Types.TUPLE([LONG, LONG])), visit) == 5
    assert seen == ["STRING", "LONG", "LONG", "TUPLE(LONG, LONG)", "MAP(STRING, TUPLE(LONG, LONG))"]


def test_what_is_derived_from_a_type_has_its_row_but_not_as_its_own() -> None:
    class Numbers(composite_types.ListTypeInfo):
        """A list with a check of the user's."""

    assert codec_of(Numbers(LONG)) is codec_of(Types.LIST(LONG))
    assert not has_own_codec(Numbers(LONG))
    assert find_codec(Own()) is None


def test_sealed_pickles_have_no_name_of_their_own() -> None:
    assert codec_of(SealedPickles()) is SEALED
    assert OF_NAME["PICKLED"] is codec_of(Types.PICKLED_BYTE_ARRAY())
