"""Subscription patterns: RE2's language, whole names, and bounded work for hostile ones."""

import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.groups.consumer_target import (
    PATTERN_CHARACTERS_MAX,
    PROGRAM_INSTRUCTIONS_MAX,
    UNICODE_CLASSES_MAX,
    PatternError,
    compile_pattern,
    matching,
)

NAMES = (
    "orders", "orders-eu", "orders.eu", "orders_eu", "Orders", "payments", "a", "aa", "aab", "b",
    "__consumer_offsets", "x-1", "x-22", "foo.bar",
)  # fmt: skip

# Recorded from RE2J 1.8, the engine of Kafka 4.3.1.
ACCEPTED = {
    "orders": ["orders"],
    "order": [],
    "rders": [],
    "^orders$": ["orders"],
    "orders-.*": ["orders-eu"],
    "orders.eu": ["orders-eu", "orders.eu", "orders_eu"],
    r"orders\.eu": ["orders.eu"],
    "(?i)orders": ["Orders", "orders"],
    "orders|payments": ["orders", "payments"],
    "(orders|payments)(-eu)?": ["orders", "orders-eu", "payments"],
    r"x-\d": ["x-1"],
    r"x-\d+": ["x-1", "x-22"],
    "a{1,3}b?": ["a", "aa", "aab"],
    "(?P<name>a)a": ["aa"],
    "(?<name>a)a": ["aa"],
    r"\Qfoo.bar\E": ["foo.bar"],
    "[^_].*offsets": [],
    "__.*": ["__consumer_offsets"],
    r"\pL": ["a", "b"],
    r"\Aa\z": ["a"],
    "a$|^b": ["a", "b"],
    "(|a)+": ["a", "aa"],
    "": [],
    "é": [],
}

REFUSED = {
    "[": "missing ]",
    "(": "missing )",
    "a)": "unexpected )",
    "*": "no argument for repetition operator",
    "a**b**": "bad repetition operator",
    "a{2,1}": "invalid repetition size",
    "a{1001}": "invalid repetition size",
    "(?=a)": "invalid perl operator",
    "(?!a)": "invalid perl operator",
    "(?<=a)a": "invalid perl operator",
    r"(a)\1": "invalid escape sequence",
    "a\\": "trailing \\",
    "[b-a]": "invalid character class range",
    r"\p{Nope}": "invalid character class range",
}


@pytest.mark.parametrize("text", ACCEPTED)
def test_a_pattern_matches_what_it_matches_in_kafka(text: str) -> None:
    assert matching(compile_pattern(text), NAMES) == tuple(ACCEPTED[text])


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_pattern_in_kafka_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(PatternError, match=re.escape(REFUSED[text])):
        compile_pattern(text)


def test_matches_are_sorted_and_told_once() -> None:
    assert matching(compile_pattern("a|b"), iter(["b", "a", "c", "b"])) == ("a", "b")


def test_a_pattern_is_its_text() -> None:
    assert compile_pattern("a.*") == compile_pattern("a.*")
    assert compile_pattern("a.*") != compile_pattern("a+")
    assert repr(compile_pattern("a.*")) == "Pattern(text='a.*')"


def test_the_longest_pattern_of_plain_characters_is_accepted_and_one_more_is_not() -> None:
    longest = "a" * PATTERN_CHARACTERS_MAX
    assert matching(compile_pattern(longest), [longest, longest[1:]]) == (longest,)
    with pytest.raises(PatternError, match="longer than"):
        compile_pattern(longest + "a")


@pytest.mark.parametrize(
    "text",
    [
        "(((a{1000}){1000}){1000})",
        "((((((((((a{10}){10}){10}){10}){10}){10}){10}){10}){10}){10})",
        "(a{100}){11}",
        "x{0,1000}" * 200,
        "(?:x{30}){30}|" * 100,
        r"(\pL?){1000}",
        r"\PL{200}",
        "(.?){1000}",
        "." * 1_000,
        "(?i)" + r"\W" * 1_000,
    ],
)
def test_a_pattern_that_is_large_inside_is_refused(text: str) -> None:
    with pytest.raises(PatternError, match=r"too large|repetition size"):
        compile_pattern(text)


def test_classes_of_unicode_are_counted() -> None:
    compile_pattern(r"\p{Greek}" * UNICODE_CLASSES_MAX)
    with pytest.raises(PatternError, match="classes of Unicode"):
        compile_pattern(r"\p{Greek}" * UNICODE_CLASSES_MAX + r"\PL")


def test_what_is_not_text_is_refused() -> None:
    with pytest.raises(PatternError, match="not a text"):
        compile_pattern("a\ud800")
    assert matching(compile_pattern("a\x00?"), ["a"]) == ("a",)


# Each of these needs time exponential in the name in a backtracking engine: Python's `re` takes 9
# seconds for the first at 28 characters, so for 10,000 names of 248 it would not end. Here it ends.
BOMBS = [
    "(a+)+!",
    "(a|aa)+!",
    "(a|a?)+!",
    "(a*)*!",
    "(.*)*(.*)*(.*)*!",
    "(([a-z])+.)+[A-Z]([a-z])+!",
    "(?:a?){240}a{240}!",
]


@pytest.mark.parametrize("text", ["a+!", *BOMBS])
def test_a_bomb_goes_over_ten_thousand_names_like_a_plain_pattern(text: str) -> None:
    names = [f"{'a' * 244}{number:04}" for number in range(10_000)]
    assert matching(compile_pattern(text), names) == ()


@pytest.mark.parametrize(
    "text",
    ["(?:a?b?){500}c", "(?:[ab]*a[ab]{600})?c", "(?:[ab]*a[ab]{20}c|" * 80 + "c" + ")" * 80],
)
def test_a_pattern_with_states_beyond_the_memory_still_answers_and_says_nothing(
    text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    pattern = compile_pattern(text)
    assert PROGRAM_INSTRUCTIONS_MAX // 8 < pattern.engine.programsize <= PROGRAM_INSTRUCTIONS_MAX
    # All words of 8 letters, repeated: a different path through the states for each name.
    names = ["".join("ab"[number >> bit & 1] for bit in range(8)) * 31 for number in range(256)]
    assert matching(pattern, names) == ()
    assert matching(pattern, ["c"]) == ("c",)
    assert capfd.readouterr() == ("", "")


def test_a_refused_pattern_writes_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    for text in REFUSED:
        with pytest.raises(PatternError):
            compile_pattern(text)
    assert capfd.readouterr() == ("", "")


def test_the_engine_is_not_imported_before_the_first_pattern() -> None:
    script = (
        "import sys, lakelog.groups.consumer_target as p; print('re2' in sys.modules); "
        "p.compile_pattern('a'); print('re2' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert ran.stdout.split() == [b"False", b"True"]


name_characters = "ab.-_"
names = st.text(name_characters, max_size=8)
expressions = st.recursive(
    st.sampled_from(["a", "b", "-", "_", r"\.", ".", "[ab]", "[^a]", r"\w"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(expressions, st.lists(names))
def test_the_common_language_means_the_same_as_in_python(text: str, given_names: list[str]) -> None:
    expected = sorted({name for name in given_names if re.fullmatch(text, name)})
    assert matching(compile_pattern(text), given_names) == tuple(expected)


@settings(deadline=None)
@given(st.sets(names, min_size=1), st.sets(names))
def test_an_alternation_of_names_matches_these_names(chosen: set[str], others: set[str]) -> None:
    text = "|".join(name.replace(".", r"\.") for name in sorted(chosen))
    assert matching(compile_pattern(text), chosen | others) == tuple(sorted(chosen))


def outcome(text: str) -> tuple[str, ...] | PatternError:
    try:
        return matching(compile_pattern(text), NAMES)
    except PatternError as error:
        return error


@settings(deadline=None)
@given(st.one_of(st.text(max_size=40), st.text(r"ab\\pP()[]{}*+?|^$.,-0129<>:=!", max_size=40)))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    found = outcome(text)
    assert str(found) if isinstance(found, PatternError) else set(found) <= set(NAMES)
