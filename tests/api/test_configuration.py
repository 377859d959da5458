"""Settings by key."""

from __future__ import annotations

import pytest

from pyflinkstate.api import Configuration, Encoder, parse_map_value
from pyflinkstate.errors import ConfigurationError


@pytest.mark.parametrize(
    ("kind", "value", "text", "default"),
    [
        ("string", "text", "text", "default"),
        ("integer", 7, "7", 3),
        ("boolean", True, "true", False),
        ("float", 1.5, "1.5", 0.5),
        ("bytearray", bytearray(b"ab"), None, bytearray(b"c")),
    ],
)
def test_a_setting_is_had_as_it_was_set_or_as_what_its_text_means(
    kind: str, value: object, text: str | None, default: object
) -> None:
    def get(configuration: Configuration) -> object:
        return getattr(configuration, f"get_{kind}")("k", default)

    made = Configuration()
    assert (get(made), made.contains_key("k")) == (default, False)
    assert getattr(made, f"set_{kind}")("k", value) is made
    assert (get(made), made.key_set()) == (value, {"k"})
    if text is not None:
        assert made.to_dict() == {"k": text}
        assert get(Configuration.from_dict({"k": text})) == value


def test_a_text_may_be_written_otherwise() -> None:
    made = Configuration.from_dict({"b": "TRUE", "t": True})
    assert (made.get_boolean("b", False), made.get_string("t", "")) == (True, "true")


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
