"""What commands tell the Kafka client: an address, a file, and what is wrong with them."""

import json
import socket
from pathlib import Path

import pytest
from tests.cli.conftest import Command

from lakelog.testing.broker import EmbeddedBroker

NOBODY = "127.0.0.1:1"
PASSWORD = "hunter2"
SASL = (
    "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="alice" password="{PASSWORD}";\n'
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "client.properties"


def test_the_file_says_where_the_cluster_is(
    command: Command, broker: EmbeddedBroker, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKELOG_BOOTSTRAP_SERVER", NOBODY)
    file.write_text(f"bootstrap.servers={broker.bootstrap}\nclient.id=me\n")
    ran = command("topics", "list", "--config", str(file))
    assert (ran.code, ran.err) == (0, "")
    assert command("topics", "list").code == 1


def test_the_command_line_comes_before_the_file(
    command: Command, broker: EmbeddedBroker, file: Path
) -> None:
    file.write_text(f"bootstrap.servers={NOBODY}\n")
    assert command("topics", "list", "--config", str(file)).code == 1
    assert command("topics", "list", "--config", str(file), "-b", broker.bootstrap).code == 0


def test_without_an_address_in_the_file_the_environment_has_it(
    command: Command, broker: EmbeddedBroker, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("security.protocol=PLAINTEXT\n")
    monkeypatch.setenv("LAKELOG_BOOTSTRAP_SERVER", broker.bootstrap)
    assert command("topics", "list", "--config", str(file)).code == 0


def test_any_of_several_servers_will_do(command: Command, broker: EmbeddedBroker) -> None:
    assert command("topics", "list", "-b", f"{NOBODY},{broker.bootstrap}").code == 0


def test_topics_take_their_configs_and_the_file(
    command: Command, broker: EmbeddedBroker, file: Path
) -> None:
    file.write_text(f"bootstrap.servers={broker.bootstrap}\n")
    client = ("--command-config", str(file))
    assert command("topics", "create", "t", "--config", "retention.ms=1000", *client).code == 0
    assert command("topics", "alter", "t", "--config", "retention.ms=2000", *client).code == 0
    found = json.loads(command("topics", "describe", "t", "--json", *client).out)
    assert {"config": "retention.ms", "value": "2000", "source": "topic"} in found["configs"]
    ran = command("topics", "create", "x", "--config", str(file))
    assert ran.code == 2
    assert "the client's properties go with --command-config" in ran.err


def test_what_has_no_meaning_is_named_and_does_no_harm(
    command: Command, broker: EmbeddedBroker, file: Path
) -> None:
    file.write_text(f"bootstrap.servers={broker.bootstrap}\nacks=all\nkey.serializer=X\n")
    ran = command("topics", "list", "--config", str(file))
    assert ran.code == 0
    assert ran.err == f"{file}: without a meaning here: acks, key.serializer\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("securty.protocol=SSL", "securty.protocol: there is no such setting; did you mean"),
        ("security.protocol=TLS", "security.protocol: is 'TLS', but must be one of:"),
        ("security.protocol=SASL_SSL", "sasl.mechanism: is missing; SASL_SSL needs one"),
        (SASL.replace("PLAIN\n", "GSSAPI\n"), "sasl.mechanism: is 'GSSAPI', but must be one of"),
        (SASL.replace("required", "="), "sasl.jaas.config: is written: MODULE required"),
        ("ssl.truststore.location=/t.jks", "ssl.truststore.location: is no PEM file"),
        ("config.providers=file", "config.providers: is not supported: write the values"),
        (
            "security.protocol=SSL\nssl.ca.location=/nowhere",
            "ssl.ca.location: cannot be used: No such file or directory",
        ),
    ],
)
def test_a_file_that_is_wrong_is_told_in_one_line(
    command: Command, file: Path, text: str, said: str
) -> None:
    file.write_text(text)
    ran = command("groups", "list", "--config", str(file))
    assert (ran.code, ran.out) == (1, "")
    (line,) = ran.err.splitlines()
    assert line.startswith("Error: ")
    assert said in line
    assert PASSWORD not in line


def test_a_file_that_cannot_be_read_is_named(command: Command, file: Path) -> None:
    ran = command("topics", "list", "--config", str(file))
    assert ran.err == f"Error: --config {file}: cannot be read: No such file or directory\n"
    file.write_bytes(b"client.id=\xff\n")
    ran = command("topics", "list", "--config", str(file))
    assert ran.err == f"Error: --config {file}: is no UTF-8 text\n"


def test_an_address_that_is_none_is_wrong_usage(command: Command) -> None:
    ran = command("topics", "list", "-b", "no address")
    assert ran.code == 2
    assert "'no address' is no address; write host:port" in ran.err


def test_a_broker_without_sasl_is_told_so_in_one_line(
    command: Command, broker: EmbeddedBroker, file: Path
) -> None:
    file.write_text(SASL)
    ran = command("topics", "list", "--config", str(file), "-b", broker.bootstrap)
    assert ran.code == 1
    (line,) = ran.err.splitlines()
    assert "takes no credentials" in line


def test_a_broker_without_tls_is_told_so_in_one_line(
    command: Command, broker: EmbeddedBroker, file: Path
) -> None:
    file.write_text("security.protocol=SSL\n")
    ran = command("topics", "list", "--config", str(file), "-b", broker.bootstrap)
    assert ran.code == 1
    (line,) = ran.err.splitlines()
    assert "security.protocol" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "list"),
        ("topics", "create", "t"),
        ("topics", "describe", "t"),
        ("topics", "delete", "t", "--yes"),
        ("topics", "alter", "t", "-p", "2"),
        ("records", "produce", "t"),
        ("records", "consume", "t"),
        ("groups", "list"),
        ("groups", "describe", "g"),
        ("groups", "delete", "g", "--yes"),
        ("groups", "seek", "g", "--to", "end", "--all-topics"),
        ("api-versions",),
    ],
    ids=" ".join,
)
def test_nobody_there_is_told_at_once_in_one_line(
    command: Command, arguments: tuple[str, ...]
) -> None:
    with socket.socket() as taken:  # nobody listens on it
        taken.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = command(*arguments, "-b", server)
    assert (ran.code, ran.out) == (1, "")
    (line,) = ran.err.splitlines()
    assert f"nobody answers at {server}: Connection refused. Is a broker running there?" in line
