"""A properties file of Kafka's own clients: how it is written, and what it means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.kafka_client.failures import BadConfig
from lakelog.kafka_client.setting_keys import IGNORED, JAVA_IGNORED, KEYS, REFUSED
from lakelog.kafka_client.settings import ClientSettings, librdkafka_names, parse_properties

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def config_of(text: str) -> dict[str, object]:
    return librdkafka_names(parse_properties(text))[0]


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("a.b=c", "a.b", "c"),
        ("a.b = c d ", "a.b", "c d "),
        ("a.b: c", "a.b", "c"),
        ("a.b c", "a.b", "c"),
        ("  a.b=c", "a.b", "c"),
        ("a.b=c=d:e", "a.b", "c=d:e"),
        ("a.b=", "a.b", ""),
        ("a.b", "a.b", ""),
        ("a\\=b=c", "a=b", "c"),
        ("a=b\\\n   c", "a", "bc"),
        ("a=b\\\\\nc=d", "a", "b\\"),
        ("a=b\\", "a", "b"),
        ("a=\\u00fc\\t\\q", "a", "\u00fc\tq"),
        ("a=1\na=2", "a", "2"),
        ("# a=0\n! a=0\n\na=1", "a", "1"),
        ("b=1\r\na=2\rc=3", "a", "2"),
        ("a=x\u2028y\x85z\x0b\x1c\f!", "a", "x\u2028y\x85z\x0b\x1c\f!"),
    ],
)
def test_a_line_is_read_as_java_reads_it(text: str, key: str, value: str) -> None:
    assert parse_properties(text)[key] == value


def escaped(text: str) -> str:
    """As `java.util.Properties.store` writes it."""
    return "".join(
        letter if letter.isascii() and letter.isalnum() else f"\\u{ord(letter):04x}"
        for letter in text
    )


def stored(given: dict[str, str]) -> str:
    return "\n".join(f"{escaped(key)}={escaped(value)}" for key, value in given.items())


letters = st.characters(max_codepoint=0xFFFF)


@given(st.dictionaries(st.text(letters), st.text("aZ=:#! \\\t\n\u00fc")))
def test_what_java_stores_is_read_back(given: dict[str, str]) -> None:
    assert parse_properties(stored(given)) == given


@given(st.text(letters) | st.text("aZ=:#! \\\t\f\r\nu0d\u00fc"))
def test_what_is_read_of_any_text_is_stored_and_read_back(text: str) -> None:
    found = parse_properties(text)
    assert parse_properties(stored(found)) == found
    assert len(found) <= text.count("\n") + text.count("\r") + 1


@pytest.mark.parametrize(
    ("options", "username", "password"),
    [
        ('username="alice" password="a;b =c";', "alice", "a;b =c"),
        ("username='alice' password=secret;", "alice", "secret"),
        (' password="q\\\\"x"\n username="alice" ;', "alice", 'q"x'),
        ('username="alice" password="p" serviceName="kafka";', "alice", "p"),
    ],
)
def test_credentials_are_read_from_jaas(options: str, username: str, password: str) -> None:
    written = f"sasl.jaas.config={JAAS} {options}".replace("\n", "\\\n")
    config = config_of(written)
    assert config == {"sasl.username": username, "sasl.password": password}


@pytest.mark.parametrize(
    ("jaas", "said"),
    [
        ("com.sun.security.auth.module.Krb5LoginModule required;", "Krb5LoginModule is not"),
        (f'{JAAS} username="alice" password="hunter2"', "is written: MODULE required"),
        (f'{JAAS} username=alice password="hunter2;', "is written: MODULE required"),
    ],
)
def test_a_login_that_cannot_be_done_is_refused_without_its_password(jaas: str, said: str) -> None:
    with pytest.raises(BadConfig) as refused:
        config_of(f"sasl.jaas.config={jaas}")
    assert str(refused.value).startswith("sasl.jaas.config: ")
    assert said in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_what_is_said_by_librdkafkas_name_comes_before_jaas() -> None:
    config = config_of(f'sasl.username=bob\nsasl.jaas.config={JAAS} username="a" password="p";')
    assert config == {"sasl.username": "bob", "sasl.password": "p"}


@pytest.mark.parametrize(
    ("text", "config"),
    [
        (
            "ssl.truststore.type=PEM\nssl.truststore.location=/ca.store",
            {"ssl.ca.location": "/ca.store"},
        ),
        ("ssl.truststore.location=/ca.pem", {"ssl.ca.location": "/ca.pem"}),
        ("ssl.truststore.certificates=PEM", {"ssl.ca.pem": "PEM"}),
        (
            "ssl.keystore.type=pem\nssl.keystore.location=/own\nssl.key.password=p",
            {"ssl.certificate.location": "/own", "ssl.key.password": "p"},
        ),
        (
            "ssl.keystore.certificate.chain=C\nssl.keystore.key=K",
            {"ssl.certificate.pem": "C", "ssl.key.pem": "K"},
        ),
    ],
)
def test_pem_stores_are_understood(text: str, config: dict[str, object]) -> None:
    assert config_of(text) == config


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("ssl.truststore.location=/trust.jks", "ssl.truststore.location"),
        ("ssl.keystore.type=PKCS12\nssl.keystore.location=/own.pem", "ssl.keystore.location"),
        (
            "ssl.truststore.type=PEM\nssl.truststore.location=/c\nssl.truststore.password=p",
            "ssl.truststore.password",
        ),
    ],
)
def test_other_stores_are_refused(text: str, key: str) -> None:
    with pytest.raises(BadConfig) as refused:
        config_of(text)
    assert refused.value.key == key


def test_what_belongs_to_other_parts_of_a_client_is_ignored_and_listed() -> None:
    text = "bootstrap.servers=a:1\nkey.deserializer=X\nacks=all\nssl.protocol=TLSv1.3"
    config, ignored = librdkafka_names(parse_properties(text))
    assert ignored == ("key.deserializer", "ssl.protocol")
    assert ClientSettings.parse(config).ignored == ("acks",)
    assert not JAVA_IGNORED & (KEYS.keys() | IGNORED | REFUSED.keys())


def test_a_key_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(BadConfig, match=r"did you mean security[.]protocol"):
        ClientSettings.parse(config_of("bootstrap.servers=a:1\nsecurty.protocol=SSL"))
