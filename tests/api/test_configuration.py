"""Settings by key."""

from __future__ import annotations

import pytest

from pyflinkstate.api import Configuration, Encoder, parse_map_value
from pyflinkstate.errors import ConfigurationError


def test_settings_are_kept_by_key() -> None:
    made = Configuration()
    made.set_string("s", "text").set_integer("i", 7).set_boolean("b", True).set_float("f", 1.5)
    made.set_bytearray("y", bytearray(b"ab"))
    assert made.get_string("s", "") == "text"
    assert made.get_integer("i", 0) == 7
    assert made.get_boolean("b", False) is True
    assert made.get_float("f", 0.0) == 1.5
    assert made.get_bytearray("y", bytearray()) == bytearray(b"ab")
    assert made.key_set() == {"s", "i", "b", "f", "y"}


def test_what_is_not_set_is_the_default() -> None:
    made = Configuration()
    assert made.get_string("s", "d") == "d"
    assert made.get_integer("i", 3) == 3
    assert made.get_boolean("b", True) is True
    assert not made.contains_key("s")


def test_a_text_is_read_as_what_is_asked_for_and_the_other_way() -> None:
    made = Configuration.from_dict({"i": "7", "b": "TRUE", "f": "1.5", "t": True})
    assert (made.get_integer("i", 0), made.get_boolean("b", False), made.get_float("f", 0.0)) == (
        7,
        True,
        1.5,
    )
    assert made.get_string("t", "") == "true"
    assert made.to_dict() == {"i": "7", "b": "TRUE", "f": "1.5", "t": "true"}


@pytest.mark.parametrize(
    ("getter", "default"), [("get_integer", 0), ("get_boolean", False), ("get_float", 0.0)]
)
def test_what_makes_no_sense_is_told_with_its_key(getter: str, default: object) -> None:
    with pytest.raises(ConfigurationError, match="setting 'k' is 'x'"):
        getattr(Configuration.from_dict({"k": "x"}), getter)("k", default)


@pytest.mark.parametrize(
    ("setter", "value"),
    [("set_string", 1), ("set_integer", "1"), ("set_integer", True), ("set_boolean", 1), ("set_float", "1")],
)
def test_a_value_of_another_type_is_refused(setter: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match="setting 'k' takes a"):
        getattr(Configuration(), setter)("k", value)


def test_configurations_are_put_together() -> None:
    first, second = Configuration.from_dict({"a": 1}), Configuration.from_dict({"b": 2})
    first.add_all(second, "x.")
    assert first == Configuration.from_dict({"a": 1, "x.b": 2})
    copy = Configuration(first)
    assert copy.remove_config("a")
    assert not copy.remove_config("a")
    assert first.contains_key("a")
    target = {"z": 0}
    copy.add_all_to_dict(target)
    assert target == {"z": 0, "x.b": 2}


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", {}),
        ("a:1,b:2", {"a": "1", "b": "2"}),
        (" a : 1 , b:'x,y:z' ", {"a": "1", "b": "x,y:z"}),
        ("{a: 1, b: 2}", {"a": "1", "b": "2"}),
        ("{ }", {}),
        ("{a: 1,}", {"a": "1"}),
        ("{a: http://host:80/x, b: -1.5}", {"a": "http://host:80/x", "b": "-1.5"}),
        ("{a b: c d}", {"a b": "c d"}),
        ("{'a, b': 'it''s', c: \"{x: y}\"}", {"a, b": "it's", "c": "{x: y}"}),
        ('{"a":1,"b":"2"}', {"a": "1", "b": "2"}),
        ("{a: it's, b: x#y}", {"a": "it's", "b": "x#y"}),
        ("{a: '', b: 'null'}", {"a": "", "b": "null"}),
    ],
)
def test_a_map_is_read_as_configuration_files_write_it(text: str, entries: dict[str, str]) -> None:
    assert parse_map_value(text) == entries


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a", "entries such as a:1,b:2 are needed"),
        (":1", "entries such as a:1,b:2 are needed"),
        ("a:1,a:2", "it has the key 'a' twice"),
        ("{a: 1, a: 2}", "it has the key 'a' twice"),
        ("{a: 1", "there is no } at its end"),
        ("{a: 1} # comment", "there is no } at its end"),
        ("{", "there is no } at its end"),
        ("{a: 1, b}", "cannot be read begins with 'b'"),
        ("{a:1}", "cannot be read begins with 'a:1'"),
        ("{a: }", "cannot be read begins with 'a:'"),
        ("{a: null}", "cannot be read begins with 'a: null'"),
        ("{a: {b: 1}}", "cannot be read begins with 'a: {b: 1}'"),
        ("{a: [1, 2]}", r"cannot be read begins with 'a: \[1, 2\]'"),
        ("{a: 1 # comment, b: 2}", "cannot be read begins with 'a: 1 # comment, b: 2'"),
        ("{a: &x 1, b: *x}", r"cannot be read begins with 'a: &x 1"),
        ("{a: !!str 1}", "cannot be read begins with"),
        ('{a: "x\\n"}', "cannot be read begins with"),
        ("{a: 'x}", "cannot be read begins with"),
        ("{,}", "cannot be read begins with"),
    ],
)
def test_what_is_no_map_of_texts_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_map_value(text)


def test_an_encoder_knows_its_charset() -> None:
    assert Encoder.simple_string_encoder() == Encoder("UTF-8")
    with pytest.raises(ConfigurationError, match="no charset 'nothing'"):
        Encoder.simple_string_encoder("nothing")


@pytest.mark.parametrize(
    ("value", "items"),
    [
        (None, []),
        ("", []),
        ("[]", []),
        ("a;b ; c", ["a", "b", "c"]),
        ("[a, b, c]", ["a", "b", "c"]),
        ("['a, b', \"c\", file:/d]", ["a, b", "c", "file:/d"]),
        ("- a\n- b\n- 'c d'", ["a", "b", "c d"]),
    ],
)
def test_lists_are_read_as_configuration_files_write_them(value: str | None, items: list[str]) -> None:
    assert Configuration.parse_list_value(value) == items
