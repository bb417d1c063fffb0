"""`lakelog records` against a real broker."""

import json
import re

import pytest
from tests.cli.conftest import Command

from lakelog.testing.broker import EmbeddedBroker

LINES: list[dict[str, object]] = [
    {"key": "k", "value": "v", "headers": [["h", "1"], ["h", None], ["", ""]], "timestamp": 1000},
    {"key": None, "value": {"base64": "/wAB"}, "headers": [], "timestamp": 2000},
    {"key": "", "value": None, "headers": [], "timestamp": 3000},
    {"key": {"base64": "gA=="}, "value": "é\u2028\n", "headers": [], "timestamp": 4000},
]


def at(broker: EmbeddedBroker) -> tuple[str, str]:
    return "-b", broker.bootstrap


def lines_of(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.split("\n") if line]


def test_producing_says_where_each_record_went(command: Command, broker: EmbeddedBroker) -> None:
    ran = command("records", "produce", "said", *at(broker), stdin=b"hello\nworld\n")
    assert ran.code == 0, ran.err
    pattern = r"Produced to partition 0 at offset (\d) with timestamp \d{13}\n"
    assert re.findall(pattern, ran.out) == ["0", "1"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_consumed_can_be_produced_again_without_loss(
    command: Command, broker: EmbeddedBroker, codec: str
) -> None:
    stdin = "".join(json.dumps(line) + "\n" for line in LINES).encode()
    first, second = f"a-{codec}", f"b-{codec}"
    assert (
        command("records", "produce", first, "--json", "-z", codec, *at(broker), stdin=stdin).code
        == 0
    )
    piped = command("records", "consume", first, "--offset", ":end", *at(broker)).out
    again = command("records", "produce", second, "--json", "-q", *at(broker), stdin=piped.encode())
    assert (again.code, again.out) == (0, "")
    found = lines_of(command("records", "consume", second, "-o", ":end", *at(broker)).out)
    assert [{name: line[name] for name in LINES[0]} for line in found] == LINES
    assert [line["offset"] for line in found] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("offset", "values"),
    [
        (":end", "0 1 2 3 4 5 6 7 8 9"),
        ("3:6", "3 4 5"),
        (":2", "0 1"),
        ("8:end", "8 9"),
        ("@1003:1006", "3 4 5"),
        ("@:1002", "0 1"),
    ],
)
def test_offsets_choose_what_is_read(
    command: Command, broker: EmbeddedBroker, offset: str, values: str
) -> None:
    offset = re.sub(r"\b10(0\d)\b", r"17000000000\1", offset)
    topic = "chosen-" + re.sub(r"[^a-z0-9]", "-", offset)
    stdin = "".join(
        json.dumps({"value": str(n), "timestamp": 1_700_000_000_000 + n}) + "\n" for n in range(10)
    )
    command("records", "produce", topic, "--json", *at(broker), stdin=stdin.encode())
    ran = command("records", "consume", topic, "--offset", offset, "--text", *at(broker))
    assert ran.out.split() == values.split()


def test_a_number_of_records_ends_what_would_go_on(
    command: Command, broker: EmbeddedBroker
) -> None:
    command("records", "produce", "many", *at(broker), stdin=b"a\nb\nc\nd\n")
    assert command("records", "consume", "many", "-n", "2", "--text", *at(broker)).out == "a\nb\n"
    last = command("records", "consume", "many", "-o", "-1", "-n", "1", "--text", *at(broker))
    assert last.out == "d\n"


def test_keys_choose_partitions_and_can_be_cut_from_the_line(
    command: Command, broker: EmbeddedBroker
) -> None:
    broker.create_topic("keyed", partitions=4)
    stdin = b"".join(b"key%d=v%d\n" % (n % 5, n) for n in range(20))
    command("records", "produce", "keyed", "--key-separator", "=", *at(broker), stdin=stdin)
    found = lines_of(command("records", "consume", "keyed", "-o", ":end", *at(broker)).out)
    assert len(found) == 20
    places = {(line["key"], line["partition"]) for line in found}
    assert len(places) == 5
    one = [line for line in found if line["key"] == "key0"]
    assert [line["value"] for line in one] == ["v0", "v5", "v10", "v15"]


def test_a_tombstone_and_headers_come_from_options(
    command: Command, broker: EmbeddedBroker
) -> None:
    options = ("-k", "gone", "-H", "a=1", "-H", "a", "--null-value")
    assert command("records", "produce", "tombs", *options, *at(broker)).code == 0
    (line,) = lines_of(command("records", "consume", "tombs", "-o", ":end", *at(broker)).out)
    assert (line["key"], line["value"], line["headers"]) == (
        "gone",
        None,
        [["a", "1"], ["a", None]],
    )


@pytest.mark.parametrize(
    ("arguments", "stdin", "said"),
    [
        (("consume", "nothing-there"), b"", "UNKNOWN_TOPIC_OR_PARTITION"),
        (("consume", "x", "-o", "soon"), b"", "'soon' is no offset; write start, end"),
        (("produce", "x", "--json"), b"{}\nnope\n", "line 2: not JSON"),
        (("produce", "x", "--key-separator", ":"), b"a:b\nab\n", "line 2: there is no ':'"),
        (("produce", "no/slash"), b"a\n", "INVALID_TOPIC_EXCEPTION"),
        (("produce", "x", "-p", "99"), b"a\n", "x, partition 99: UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_a_mistake_gets_a_message_and_no_traceback(
    command: Command,
    broker: EmbeddedBroker,
    arguments: tuple[str, ...],
    stdin: bytes,
    said: str,
) -> None:
    ran = command("records", *arguments, *at(broker), stdin=stdin)
    assert ran.code != 0
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_no_broker_there_says_how_to_start_one(command: Command) -> None:
    ran = command("records", "consume", "x", "-b", "127.0.0.1:1")
    assert ran.code == 1
    assert "nobody answers at 127.0.0.1:1" in ran.err
    assert "lakelog up" in ran.err
