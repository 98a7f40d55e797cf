"""Java properties files."""

import pytest

from kafkalike.properties import PropertiesError, format_properties, parse_properties


def test_reading() -> None:
    text = (
        "# comment\n! other\n\n  a = 1 \nb:2\nc 3\nd=x\\\n   y\ne\\ f=g\n"
        "h=\\u00e9\\t\\\\\nlast=\nbare\na=9\n"
    )
    assert parse_properties(text) == {
        "a": "9",
        "b": "2",
        "c": "3",
        "d": "xy",
        "e f": "g",
        "h": "é\t\\",
        "last": "",
        "bare": "",
    }


def test_trailing_blanks_of_a_value_stay() -> None:
    assert parse_properties("a=1 ") == {"a": "1 "}


def test_bad_escape_names_the_line() -> None:
    with pytest.raises(PropertiesError, match="line 2"):
        parse_properties("a=1\nb=\\u12x4\n")


def test_what_is_written_is_read_back() -> None:
    values = {"a b": " x", "c=d": "e:f#g", "é": "\n\\🙂", "plain": "1"}
    assert parse_properties(format_properties(values, "two\nlines")) == values
