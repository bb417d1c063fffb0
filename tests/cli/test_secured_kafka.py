"""Every command that asks Kafka, against a real Apache Kafka over TLS, with a properties file."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Command, Ran
from tests.cli.group_joining import join_classic, join_consumer, leave_classic, leave_consumer
from tests.client.feeding import FIRST_MS, Fed, transact
from tests.kafka_client.certificates import KEY_PASSWORD
from tests.kafka_client.secured_kafka import PASSWORD, USERNAME, SecuredKafka

pytestmark = pytest.mark.proof

KINDS = {"java": "SCRAM-SHA-512", "librdkafka": "PLAIN"}
"""How the file is written, and the mechanism that it names."""

MODULES = "org.apache.kafka.common.security"


def java_properties(kafka: SecuredKafka, **more: str) -> str:
    """A file as Kafka's own tools take it."""
    keys = {
        "bootstrap.servers": kafka.server("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": (
            f"{MODULES}.scram.ScramLoginModule required \\\n"
            f'  username="{USERNAME}" password="{PASSWORD}";'
        ),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(kafka.certificates.ca),
    }
    named = {key.replace("_", "."): value for key, value in more.items()}
    return "".join(f"{key}={value}\n" for key, value in {**keys, **named}.items())


def librdkafka_properties(kafka: SecuredKafka) -> str:
    return "".join(f"{key}={value}\n" for key, value in kafka.config("SASL_SSL", "PLAIN").items())


@pytest.fixture
def kafka(secured_apache_kafka: SecuredKafka) -> SecuredKafka:
    return secured_apache_kafka


@pytest.fixture(params=KINDS)
def asked(
    request: pytest.FixtureRequest, command: Command, kafka: SecuredKafka, tmp_path: Path
) -> Callable[..., Ran]:
    """Run a command with the file, which must succeed."""
    written = java_properties if request.param == "java" else librdkafka_properties
    (tmp_path / "client.properties").write_text(written(kafka))

    def run(*arguments: str, stdin: bytes = b"") -> Ran:
        ran = command(*arguments, "--command-config", "client.properties", stdin=stdin)
        assert (ran.code, ran.err) == (0, ""), ran
        return ran

    return run


def name_of(request: pytest.FixtureRequest) -> str:
    """A topic, or a group, that no other test uses."""
    name: str = request.node.name
    return "".join(letter if letter.isalnum() else "-" for letter in name)[:100]


def test_the_life_of_a_topic(asked: Callable[..., Ran], request: pytest.FixtureRequest) -> None:
    topic = name_of(request)
    made = asked("topics", "create", topic, "-p", "3", "--config", "retention.ms=100000")
    assert made.out.split() == ["TOPIC", "STATUS", topic, "OK"]
    assert topic in {row["topic"] for row in json.loads(asked("topics", "list", "--json").out)}
    asked("topics", "alter", topic, "-c", "max.message.bytes=2000", "-u", "retention.ms", "-p", "5")
    found = json.loads(asked("topics", "describe", topic, "--json").out)
    assert [row["partition"] for row in found["partitions"]] == [0, 1, 2, 3, 4]
    assert {(row["start"], row["end"]) for row in found["partitions"]} == {(0, 0)}
    configs = {row["config"]: (row["value"], row["source"]) for row in found["configs"]}
    assert configs["max.message.bytes"] == ("2000", "topic")
    assert configs["retention.ms"][1] == "default"
    asked("topics", "delete", topic, "--yes")
    assert topic not in asked("topics", "list").out


def test_records_come_back_as_they_were_sent(
    asked: Callable[..., Ran], request: pytest.FixtureRequest
) -> None:
    topic = name_of(request)
    asked("topics", "create", topic, "-p", "3")
    lines = b"".join(b"k%d=v%d\n" % (number % 7, number) for number in range(50))
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    for codec in codecs:
        options = ("--key-separator", "=", "-z", codec, "--quiet")
        asked("records", "produce", topic, *options, stdin=lines)
    out = asked("records", "consume", topic, "-o", ":end").out
    rows = [json.loads(line) for line in out.splitlines()]
    values = sorted(row["value"] for row in rows)
    assert values == sorted([f"v{number}" for number in range(50)] * len(codecs))
    assert len({(row["key"], row["partition"]) for row in rows}) == 7
    assert len(asked("records", "consume", topic, "-n", "3").out.splitlines()) == 3
    assert len(asked("records", "consume", topic, "-o", "@-1h:end").out.splitlines()) == 250


def test_the_life_of_a_group(
    asked: Callable[..., Ran], kafka: SecuredKafka, request: pytest.FixtureRequest
) -> None:
    topic = group = name_of(request)
    asked("topics", "create", topic, "-p", "2")
    asked("records", "produce", topic, "-p", "0", "--quiet", stdin=b"a\nb\nc\n")
    asked("groups", "seek", group, "--to", "earliest", "-t", topic, "--execute")
    listed = json.loads(asked("groups", "list", "--json", "--state", "empty").out)
    assert group in {row["group"] for row in listed}
    (found,) = json.loads(asked("groups", "describe", group, "--json").out)
    rows = [(row["committed"], row["end"], row["lag"]) for row in found["partitions"]]
    assert rows == [(0, 3, 3), (0, 0, 0)]
    assert found["partitions"][0]["seconds"] >= 0
    done = asked("groups", "seek", group, "--by", "2", "-t", f"{topic}:0", "--json", "--execute")
    assert json.loads(done.out)["partitions"][0]["committed"] == 2
    asked("groups", "delete", group, "--yes")
    assert group not in asked("groups", "list").out


def test_members_of_both_protocols_are_described(
    asked: Callable[..., Ran], kafka: SecuredKafka, request: pytest.FixtureRequest
) -> None:
    topic = name_of(request)
    classic, modern = f"{topic}-classic", f"{topic}-modern"
    asked("topics", "create", topic, "-p", "2")
    server = kafka.plaintext
    old = join_classic(server, classic, client_id="old", assigned={topic: 2})
    new = join_consumer(server, modern, client_id="new", rack="r", topic=topic)
    try:
        groups = json.loads(asked("groups", "describe", classic, modern, "--json").out)
        assert [group["type"] for group in groups] == ["classic", "consumer"]
        assert [group["members"][0]["client"] for group in groups] == ["old", "new"]
        assert [group["members"][0]["assigned"] for group in groups] == [{topic: [0, 1]}] * 2
    finally:
        leave_classic(server, classic, old)
        leave_consumer(server, modern, new)


def test_nodes_discover_themselves(
    asked: Callable[..., Ran], request: pytest.FixtureRequest
) -> None:
    topic = name_of(request)
    asked("topics", "create", topic, "-p", "4")
    options = ("--group", topic, "--topic", topic, "--node-id", "a", "--for", "2", "--json")
    views = [json.loads(line) for line in asked("discover", *options).out.splitlines()]
    assert views[-1]["partitions"] == [0, 1, 2, 3]


def test_what_the_broker_speaks_is_listed(asked: Callable[..., Ran]) -> None:
    rows = json.loads(asked("api-versions", "--json").out)
    assert {"Metadata", "SaslAuthenticate"} <= {row["api"] for row in rows}


def test_aborted_records_are_shown_unless_the_file_says_otherwise(
    command: Command, kafka: SecuredKafka, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    topic = name_of(request)
    file = tmp_path / "client.properties"
    file.write_text(java_properties(kafka))
    consume = ("records", "consume", topic, "-o", ":end", "--text", "--config", str(file))
    made = command("topics", "create", topic, "-p", "1", "--command-config", str(file))
    assert made.code == 0
    for value, commits in ((b"one", True), (b"never", False), (b"two", True)):
        transact(kafka.plaintext, topic, [Fed(0, FIRST_MS, value)], commits=commits)
    assert command(*consume).out.split() == ["one", "never", "two"]
    file.write_text(java_properties(kafka, isolation_level="read_committed"))
    assert command(*consume).out.split() == ["one", "two"]


def test_a_certificate_of_ours_comes_from_a_pem_store(
    command: Command, kafka: SecuredKafka, tmp_path: Path
) -> None:
    certificates = kafka.certificates
    store = tmp_path / "own.pem"
    store.write_text(certificates.client_locked_key.read_text() + certificates.client.read_text())
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SSL\nssl.truststore.location={certificates.ca}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={store}\nssl.key.password={KEY_PASSWORD}\n"
    )
    ran = command("topics", "list", "--config", str(file), "-b", kafka.server("MUTUAL"))
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda kafka: (PASSWORD, "wrong"), f"refuses '{USERNAME}' (SCRAM-SHA-512)"),
        (
            lambda kafka: (str(kafka.certificates.ca), str(kafka.certificates.stranger)),
            "is not trusted: ",
        ),
        (
            lambda kafka: ("security.protocol=SASL_SSL", "security.protocol=PLAINTEXT"),
            "speaks TLS: set security.protocol to SSL or SASL_SSL",
        ),
        (
            lambda kafka: (kafka.server("SASL_SSL"), "127.0.0.1:1"),
            "nobody answers at 127.0.0.1:1: Connection refused",
        ),
    ],
    ids=["password", "authority", "protocol", "address"],
)
@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "list"),
        ("records", "consume", "t"),
        ("groups", "describe", "g"),
        ("api-versions",),
        ("discover", "--group", "g", "--topic", "t", "--timeout", "3"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_is_wrong_is_said_in_one_line(
    command: Command,
    kafka: SecuredKafka,
    tmp_path: Path,
    arguments: tuple[str, ...],
    change: Callable[[SecuredKafka], tuple[str, str]],
    said: str,
) -> None:
    right, wrong = change(kafka)
    file = tmp_path / "client.properties"
    file.write_text(java_properties(kafka).replace(right, wrong))
    ran = command(*arguments, "--config", str(file))
    assert (ran.code, ran.out) == (1, "")
    (line,) = ran.err.splitlines()
    assert line.startswith("Error: ")
    assert said in line
    assert PASSWORD not in line
