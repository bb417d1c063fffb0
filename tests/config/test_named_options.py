"""Options by name: spelling, suggestions and simple values."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.config.named_options import BadOption, NamedOptions, boolean, positive, whole

NAMES = NamedOptions(("startingOffsets", "topic"), {"topics": "topic"})


def test_any_case_is_taken_for_the_options_own_spelling() -> None:
    assert NAMES.spelled({"STARTINGoffsets": "a", "Topic": "b"}) == {
        "startingOffsets": "a",
        "topic": "b",
    }


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("startingOffset", "; did you mean startingOffsets?"),
        ("TOPICS", "; did you mean topic?"),
        ("zzz", "zzz is not an option"),
    ],
)
def test_an_unknown_name_is_refused_with_what_may_be_meant(name: str, hint: str) -> None:
    with pytest.raises(BadOption) as caught:
        NAMES.spelled({name: ""})
    assert caught.value.option == name
    assert str(caught.value).endswith(hint)


def test_one_option_has_one_value() -> None:
    assert NAMES.spelled({"topic": "a", "TOPIC": "a"}) == {"topic": "a"}
    with pytest.raises(BadOption, match="topic is given twice: 'a' and 'b'"):
        NAMES.spelled({"topic": "a", "TOPIC": "b"})


def test_values_are_read_or_refused() -> None:
    assert boolean("o", " TRUE ") is True
    assert boolean("o", "false") is False
    assert whole("o", " -12 ") == -12
    assert positive("o", "9", end=10) == 9
    for text in ("0", "10", "1.0", "", "٣"):
        with pytest.raises(BadOption, match=r"^o is "):
            positive("o", text, end=10)
    with pytest.raises(BadOption, match="true or false"):
        boolean("o", "1")


@given(st.integers(-(1 << 70), 1 << 70))
def test_whole_numbers_have_64_bits(number: int) -> None:
    if -(1 << 63) <= number < 1 << 63:
        assert whole("o", str(number)) == number
    else:
        with pytest.raises(BadOption):
            whole("o", str(number))


def test_a_refusal_travels_between_processes() -> None:
    again = pickle.loads(pickle.dumps(BadOption("o", "o is wrong")))
    assert (again.option, str(again)) == ("o", "o is wrong")
