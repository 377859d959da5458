"""Rows as PyFlink has them: fields by position and by name, kinds, equality, printing, copies."""

import copy
import pickle
from operator import attrgetter

import pytest
from hypothesis import given, strategies as st

from pyflinkstate import Row, RowKind


def named(names, *values):
    row = Row(*values)
    row.set_field_names(names)
    return row


class TestMaking:
    def test_fields_are_given_by_position_or_by_name(self):
        assert list(Row(1, "a")) == [1, "a"]
        assert list(Row(b=1, a="x")) == [1, "x"]
        assert (len(Row()), len(Row(a=1, b=None))) == (0, 2)

    def test_a_row_of_names_is_a_schema(self):
        schema = Row("name", "age")
        assert schema("Ann", 30) == Row(name="Ann", age=30)
        assert schema("Bob", None).as_dict() == {"name": "Bob", "age": None}
        assert schema("Eve") == Row(name="Eve")

    def test_any_field_name_will_do(self):
        row = Row(**{"a b": 1, "as_dict": 2, "_values": 3, "__len__": 4})
        assert [row["a b"], row["as_dict"], row["_values"], row["__len__"]] == [1, 2, 3, 4]
        assert callable(row.as_dict)
        assert len(row) == 4

    def test_names_are_given_later(self):
        row = named(["a", "b"], 1, 2)
        assert row == Row(a=1, b=2)
        assert row.b == 2


class TestFields:
    def test_are_had_by_position_slice_and_name(self):
        row = Row(a=1, b=2, c=3)
        assert (row[0], row[-1], row[0:2], row[::-1]) == (1, 3, [1, 2], [3, 2, 1])
        assert (row["a"], row.b) == (1, 2)

    def test_are_set_by_position_name_and_slice(self):
        row = Row(a=1, b=2, c=3)
        row["a"], row[1] = 5, 6
        row[2:] = [7]
        assert row == Row(a=5, b=6, c=7)

    @pytest.mark.parametrize(
        ("place", "value", "error", "message"),
        [
            ("z", 1, ValueError, "no field 'z'"),
            (2, 1, IndexError, None),
            (slice(0, 2), [1], ValueError, "number of fields of a Row cannot change"),
        ],
    )
    def test_there_are_as_many_as_there_were(self, place, value, error, message):
        row = Row(a=1, b=2)
        with pytest.raises(error, match=message):
            row[place] = value
        with pytest.raises(ValueError, match="has 2 fields, not 1"):
            row.set_field_names(["a"])
        assert row == Row(a=1, b=2)

    @pytest.mark.parametrize("row", [Row(1), Row(a=1)], ids=repr)
    def test_are_not_set_as_attributes(self, row):
        with pytest.raises(AttributeError, match=r"row\['a'\]"):
            row.a = 5

    def test_in_asks_for_names_or_else_for_values(self):
        assert "a" in Row(a=1)
        assert 1 not in Row(a=1)
        assert 1 in Row(1)
        assert 2 not in Row(1)
        assert "z" not in named(["a"], "z")

    def test_by_several_names(self):
        assert Row(a=1, b=2).get_fields_by_names(["b", "a"]) == [2, 1]
        assert Row(a=1, b=2).get_fields_by_names(["b"]) == [2]
        assert Row(1, 2).get_fields_by_names(["b", "a"]) == [1, 2]

    def test_as_a_dict_rows_inside_are_taken_as_they_are_or_recursively(self):
        assert Row(a=1, b=Row(c=2)).as_dict() == {"a": 1, "b": Row(c=2)}
        row = Row(a=Row(b=1), c=[[Row(d=2)]], e={"f": {"g": Row(h=3)}}, t=(Row(u=4),))
        assert row.as_dict(recursive=True) == {
            "a": {"b": 1},
            "c": [[{"d": 2}]],
            "e": {"f": {"g": {"h": 3}}},
            "t": (Row(u=4),),
        }


def test_a_row_is_an_insert_unless_told_and_kinds_print_as_in_a_changelog():
    row = Row(1)
    assert row.get_row_kind() is RowKind.INSERT
    row.set_row_kind(RowKind.DELETE)
    assert row.get_row_kind() is RowKind.DELETE
    assert Row.of_kind(RowKind.UPDATE_AFTER, a=1).get_row_kind() is RowKind.UPDATE_AFTER
    assert [(str(kind), kind.value) for kind in RowKind] == [("+I", 0), ("-U", 1), ("+U", 2), ("-D", 3)]


class TestEquality:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (Row(1, 2), Row(1, 2)),
            (Row(1, 2), Row(1.0, True + 1)),
            (Row(a=1, b=2), Row(a=1, b=2)),
            (Row(a=1, b=2), Row(b=2, a=1)),
            (Row(a=1, b=2), Row("a", "b")(1, 2)),
            (Row(a=1, b=2), named(("b", "a"), 2, 1)),
            (Row(Row(b=1, a=2)), Row(Row(a=2, b=1))),
            (Row.of_kind(RowKind.DELETE, 1), Row.of_kind(RowKind.DELETE, 1)),
        ],
        ids=repr,
    )
    def test_equal_rows_have_one_hash(self, one, other):
        assert one == other
        assert hash(one) == hash(other)

    @pytest.mark.parametrize(
        "other",
        [Row(1, 3), Row(1), Row(a=1, b=2), Row.of_kind(RowKind.DELETE, 1, 2), (1, 2), [1, 2], None],
        ids=repr,
    )
    def test_others_differ(self, other):
        assert Row(1, 2) != other
        assert other != Row(1, 2)

    def test_names_count(self):
        assert Row(a=1, b=2) != Row(c=1, d=2)
        assert Row(a=1, b=2) != Row(a=1)

    def test_the_hash_is_that_of_the_fields(self):
        assert hash(Row(1, 2)) == hash((1, 2))


@pytest.mark.parametrize(
    ("row", "printed"),
    [
        (Row(1, "a"), "<Row(1, 'a')>"),
        (Row(), "<Row()>"),
        (Row(a=1, b="x"), "Row(a=1, b='x')"),
        (Row(Row(1), [Row(a=1)]), "<Row(<Row(1)>, [Row(a=1)])>"),
        (Row.of_kind(RowKind.DELETE, 1), "<Row(1)>"),
        (named(["a"], None), "Row(a=None)"),
    ],
    ids=repr,
)
def test_a_row_prints_as_in_pyflink(row, printed):
    assert repr(row) == str(row) == printed


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{f"pickle {p}": lambda row, p=p: pickle.loads(pickle.dumps(row, p)) for p in range(2, 6)},
}


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize(
    "row", [Row(1, [2]), Row(b=[1], a=2), Row(), Row.of_kind(RowKind.DELETE, a=1)], ids=repr
)
def test_a_copy_is_equal_and_independent(make, row):
    other = make(row)
    assert other == row
    assert repr(other) == repr(row)
    assert other.get_row_kind() is row.get_row_kind()
    if len(other):
        other[0] = "changed"
        assert row != other


def test_a_deep_copy_shares_nothing_that_can_change():
    row = Row(a=[1], b=Row([2]))
    other = copy.deepcopy(row)
    other.a.append(5)
    other.b[0].append(5)
    assert row == Row(a=[1], b=Row([2]))


@given(st.dictionaries(st.text(), st.none() | st.integers() | st.text()), st.randoms())
def test_the_order_of_names_does_not_count(fields, random):
    names = list(fields)
    random.shuffle(names)
    other = named(names, *(fields[name] for name in names))
    row = named(list(fields), *fields.values())
    assert row == other
    assert hash(row) == hash(other)


REFUSED = {
    "fields by position and name": (lambda: Row(1, a=2), ValueError, "not both"),
    "so with a kind": (lambda: Row.of_kind(RowKind.DELETE, 1, a=2), ValueError, "not both"),
    "more values than names": (lambda: Row("a", "b")("x", 30, 1), ValueError, "names 2 fields, and 3"),
    "no such position": (lambda: Row(1, 2, 3)[3], IndexError, None),
    "no such name": (lambda: Row(a=1, b=2)["z"], ValueError, r"Row\(a=1, b=2\) has no field 'z'"),
    "no such attribute": (lambda: attrgetter("z")(Row(a=1)), AttributeError, "z"),
    "no names": (lambda: Row(1)["a"], ValueError, "no field 'a'"),
    "no names, by attribute": (lambda: attrgetter("a")(Row(1)), AttributeError, "no field 'a'"),
    "one of several names": (lambda: Row(a=1).get_fields_by_names(["a", "z"]), ValueError, "'z'"),
    "a dict without names": (lambda: Row(1).as_dict(), TypeError, "no field names"),
    "a dict without names inside": (lambda: Row(a=Row(1)).as_dict(True), TypeError, "no field names"),
    "a kind as text": (lambda: Row.of_kind("+I", 1), ValueError, "not a RowKind"),
    "a kind as number": (lambda: Row.of_kind(0, 1), ValueError, "not a RowKind"),
    "a kind of None": (lambda: Row.of_kind(None, 1), ValueError, "not a RowKind"),
    "the hash of a list": (lambda: hash(Row([1])), TypeError, "unhashable"),
}


@pytest.mark.parametrize(("call", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_a_mistake_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
