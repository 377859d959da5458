"""Row types: what stands for a row, what becomes of it, what is refused and how."""

import pickle

import pytest

from pyflinkstate import Row, RowKind, Types
from pyflinkstate.api import ExternalTypeInfo, RowTypeInfo
from pyflinkstate.errors import ConfigurationError

LONG, STRING = Types.LONG(), Types.STRING()
PERSON = Types.ROW_NAMED(["name", "age"], [STRING, LONG])
PAIR = Types.ROW([LONG, STRING])


class TestWhatFits:
    @pytest.mark.parametrize(
        "value",
        [
            Row("Ann", 30),
            Row(name="Ann", age=30),
            Row(age=30, name="Ann"),
            ("Ann", 30),
            ["Ann", 30],
            {"age": 30, "name": "Ann"},
        ],
        ids=repr,
    )
    def test_becomes_a_row_with_the_names_of_the_type(self, value):
        kept = PERSON.check(value)
        assert repr(kept) == "Row(name='Ann', age=30)"
        assert PERSON.check(kept) == kept

    @pytest.mark.parametrize(
        ("row_type", "value", "kept"),
        [
            (PAIR, (1, "a"), "Row(f0=1, f1='a')"),
            (PAIR, Row(f1="a", f0=1), "Row(f0=1, f1='a')"),
            (PERSON, Row(None, None), "Row(name=None, age=None)"),
            (PERSON, {"name": None, "age": None}, "Row(name=None, age=None)"),
            (
                Types.ROW([Types.DOUBLE(), Types.LIST(LONG), PAIR]),
                (1, (2,), [3, "x"]),
                "Row(f0=1.0, f1=[2], f2=Row(f0=3, f1='x'))",
            ),
        ],
    )
    def test_fields_are_converted_and_may_be_none(self, row_type, value, kept):
        assert repr(row_type.check(value)) == kept

    def test_the_kind_is_kept(self):
        kept = PAIR.check(Row.of_kind(RowKind.UPDATE_BEFORE, 1, "a"))
        assert kept.get_row_kind() is RowKind.UPDATE_BEFORE

    def test_what_is_kept_is_the_types_own(self):
        mine = Row(name="Ann", age=30)
        kept = PERSON.check(mine)
        mine["age"] = "no long"
        assert kept.age == 30
        assert kept is not mine


class TestWhatDoesNotFit:
    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            (Row("Ann"), "there is none for 'age'"),
            (("Ann",), "there is none for 'age'"),
            ([], "there is none for 'name'"),
            (Row("Ann", 30, 1), "has 3 fields, and ROW.* has 2"),
            ({"name": "Ann"}, "has no field 'age'"),
            ({"name": "Ann", "age": 1, "more": 2}, "has a field 'more'"),
            (Row(name="Ann", years=1), "has no field 'age'"),
            (Row(name="Ann", age=1, more=2), "has a field 'more'"),
            (Row(name="Ann", age="old"), r"field 'age': 'old' \(str\) does not fit LONG"),
            (("Ann", 2**63), "field 'age': .* out of the range of LONG"),
            ("Ann", r"does not fit ROW\(name: STRING, age: LONG\)"),
            (5, "does not fit ROW"),
            (None, "does not fit ROW"),
            ({1, 2}, "does not fit ROW"),
        ],
        ids=repr,
    )
    def test_is_refused_by_the_name_of_the_field(self, value, reason):
        with pytest.raises(ValueError, match=reason):
            PERSON.check(value)

    def test_a_field_of_a_row_inside_is_told_by_its_path(self):
        nested = Types.ROW_NAMED(["who"], [PERSON])
        with pytest.raises(ValueError, match="field 'who': field 'age': "):
            nested.check([("Ann", "old")])


class TestTheType:
    def test_names_and_types_of_the_fields(self):
        assert PERSON.get_field_names() == ["name", "age"]
        assert PAIR.get_field_names() == ["f0", "f1"]
        assert PERSON.get_field_types() == [STRING, LONG]
        assert PERSON.get_field_index("age") == 1
        with pytest.raises(ValueError, match="no field 'z'"):
            PERSON.get_field_index("z")

    @pytest.mark.parametrize(
        ("names", "reason"),
        [
            (["a"], "cannot have 1 names"),
            (["a", "b", "c"], "cannot have 3 names"),
            (["a", "a"], "a name of its own"),
            (["a", 1], "a name of its own"),
        ],
        ids=repr,
    )
    def test_there_is_one_name_for_each_field(self, names, reason):
        with pytest.raises(ConfigurationError, match=reason):
            Types.ROW_NAMED(names, [LONG, STRING])

    @pytest.mark.parametrize(
        ("row_type", "spelled", "printed"),
        [
            (PERSON, "ROW(name: STRING, age: LONG)", "RowTypeInfo(name: String, age: Long)"),
            (PAIR, "ROW(LONG, STRING)", "RowTypeInfo(Long, String)"),
            (Types.ROW([]), "ROW()", "RowTypeInfo()"),
        ],
    )
    def test_is_spelled_with_names_where_it_has_some(self, row_type, spelled, printed):
        assert (str(row_type), repr(row_type)) == (spelled, printed)

    def test_types_are_equal_with_names_and_types(self):
        assert Types.ROW_NAMED(["f0", "f1"], [LONG, STRING]) == PAIR
        assert Types.ROW_NAMED(["a", "b"], [LONG, STRING]) != PAIR
        assert Types.ROW([LONG, LONG]) != PAIR
        assert Types.TUPLE([LONG, STRING]) != PAIR
        assert len({PAIR, RowTypeInfo([LONG, STRING])}) == 1

    @pytest.mark.parametrize("row_type", [PERSON, PAIR, ExternalTypeInfo(PERSON)], ids=str)
    def test_survives_pickling(self, row_type):
        back = pickle.loads(pickle.dumps(row_type))
        assert back == row_type
        assert repr(back) == repr(row_type)
        with pytest.raises(ValueError, match="field"):
            back.check(("a", "b"))


def test_an_external_type_checks_as_the_type_inside():
    external = ExternalTypeInfo(PERSON)
    assert external.check(("Ann", 30)) == Row(name="Ann", age=30)
    assert (str(external), repr(ExternalTypeInfo(LONG))) == (f"EXTERNAL({PERSON})", "ExternalTypeInfo<Long>")
