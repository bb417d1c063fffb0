"""What a client is told: the addresses, the credentials, the limits and the waits. Pure.

Rules:

- Names and defaults are librdkafka's, with three exceptions: `check.crcs` is on and
  `auto.offset.reset` is `error`, because nothing is skipped in silence; a metadata answer is old
  after five minutes, as Java's client has it.
- A key that nobody knows is an error that names the nearest one. A key that librdkafka knows and
  that has no meaning here is accepted and listed in `ignored`.
- No password, and no private key, is shown by `repr` or in the text of an error.
- A properties file of Kafka's Java clients is read as it is (`parse_properties`), and what only
  Java calls so is translated first (`librdkafka_names`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lakelog.kafka_client.failures import BadConfig
from lakelog.kafka_client.setting_keys import (
    ALIASES,
    IGNORED,
    JAVA_IGNORED,
    KEYS,
    REFUSED,
    BrokerAddress,
    Value,
    is_ignored,
)
from lakelog.retry import Backoff

MIB: Final = 1024 * 1024
FRAME_OVERHEAD_BYTES: Final = 512
"""What an answer may have beside the records that `fetch.max.bytes` counts."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Everything a client is told; a field has its key's name with underscores."""

    bootstrap_servers: tuple[BrokerAddress, ...]
    client_id: str = "lakelog"
    client_rack: str = ""
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)
    ssl_ca_location: str = ""
    ssl_ca_pem: str = field(default="", repr=False)
    ssl_certificate_location: str = ""
    ssl_certificate_pem: str = field(default="", repr=False)
    ssl_key_location: str = ""
    ssl_key_pem: str = field(default="", repr=False)
    ssl_key_password: str = field(default="", repr=False)
    ssl_endpoint_identification_algorithm: str = "https"
    enable_ssl_certificate_verification: bool = True
    socket_timeout_ms: int = 60_000
    socket_connection_setup_timeout_ms: int = 10_000
    socket_receive_buffer_bytes: int = 0
    socket_keepalive_enable: bool = False
    receive_message_max_bytes: int = 256 * MIB
    reconnect_backoff_ms: int = 100
    reconnect_backoff_max_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000
    metadata_max_age_ms: int = 300_000
    default_api_timeout_ms: int = 30_000
    fetch_min_bytes: int = 1
    fetch_wait_max_ms: int = 500
    fetch_max_bytes: int = 50 * MIB
    max_partition_fetch_bytes: int = MIB
    isolation_level: str = "read_committed"
    check_crcs: bool = True
    allow_auto_create_topics: bool = False
    auto_offset_reset: str = "error"
    group_id: str = ""
    group_instance_id: str = ""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3000
    max_poll_interval_ms: int = 300_000
    ignored: tuple[str, ...] = ()

    @classmethod
    def parse(cls, config: Mapping[str, object]) -> "ClientSettings":
        """Read a configuration by librdkafka's names; raises BadConfig."""
        given, ignored = _sorted_out(config)
        if "bootstrap.servers" not in given:
            raise BadConfig("bootstrap.servers", "is missing; give at least one host:port")
        values: dict[str, Any] = {}
        for key, (name, written) in given.items():
            values[key.replace(".", "_")] = _read(name, key, written)
        settings = cls(**values, ignored=ignored)
        _check_security(settings)
        _check_limits(settings)
        return settings

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether a connection begins with credentials."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def is_read_committed(self) -> bool:
        """Whether records of aborted and open transactions are left out."""
        return self.isolation_level == "read_committed"

    @property
    def reconnect_backoff(self) -> Backoff:
        """The waits between attempts to connect to one broker."""
        return Backoff(self.reconnect_backoff_ms, self.reconnect_backoff_max_ms)

    @property
    def retry_backoff(self) -> Backoff:
        """The waits between attempts of one request."""
        return Backoff(self.retry_backoff_ms, self.retry_backoff_max_ms)

    @property
    def frame_bytes_max(self) -> int:
        """The largest answer that is read; never less than what we ask for."""
        return max(self.receive_message_max_bytes, self.fetch_max_bytes + FRAME_OVERHEAD_BYTES)


def _sorted_out(
    config: Mapping[str, object],
) -> tuple[dict[str, tuple[str, object]], tuple[str, ...]]:
    """By key the name it was given by and what was written, and the keys that mean nothing here."""
    given: dict[str, tuple[str, object]] = {}
    ignored = []
    for name, written in config.items():
        if not isinstance(name, str):
            raise BadConfig(repr(name), "the name of a setting is a text")
        key = ALIASES.get(name, name)
        if key in REFUSED and written is not None:
            raise BadConfig(name, f"is not supported: {REFUSED[key]}")
        if key not in KEYS:
            if not is_ignored(key) and key not in REFUSED:
                raise BadConfig.unknown(name, (*KEYS, *ALIASES, *IGNORED))
            ignored.append(name)
        elif written is None:
            continue  # the default, as in confluent-kafka
        elif key in given and given[key][1] != written:
            raise BadConfig(name, f"says something else than {given[key][0]}")
        else:
            given[key] = (name, written)
    return given, tuple(sorted(ignored))


def _read(name: str, key: str, written: object) -> Value:
    try:
        return KEYS[key](written)
    except ValueError as reason:
        raise BadConfig(name, str(reason)) from None


def _check_security(settings: ClientSettings) -> None:
    if settings.has_sasl:
        _check_sasl(settings)
    for what in ("ca", "certificate", "key"):
        if getattr(settings, f"ssl_{what}_location") and getattr(settings, f"ssl_{what}_pem"):
            raise BadConfig(f"ssl.{what}.pem", f"say where it is (ssl.{what}.location) or give it")
    has_key = bool(settings.ssl_key_location or settings.ssl_key_pem)
    has_certificate = bool(settings.ssl_certificate_location or settings.ssl_certificate_pem)
    if has_key and not has_certificate:
        raise BadConfig("ssl.certificate.location", "is missing; a key needs its certificate")
    if settings.ssl_certificate_pem and not has_key:
        raise BadConfig("ssl.key.pem", "is missing; a certificate needs its key")


def _check_sasl(settings: ClientSettings) -> None:
    if not settings.sasl_mechanism:
        raise BadConfig("sasl.mechanism", f"is missing; {settings.security_protocol} needs one")
    if not settings.sasl_username:
        raise BadConfig("sasl.username", f"is missing; {settings.sasl_mechanism} needs one")
    if not settings.sasl_password:
        raise BadConfig("sasl.password", f"is missing; {settings.sasl_mechanism} needs one")
    for key, value in (
        ("sasl.username", settings.sasl_username),
        ("sasl.password", settings.sasl_password),
    ):
        # NUL separates the two in PLAIN; a lone surrogate has no UTF-8.
        if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
            raise BadConfig(key, "has a character that cannot be sent")


def _check_limits(settings: ClientSettings) -> None:
    if settings.reconnect_backoff_max_ms < settings.reconnect_backoff_ms:
        raise BadConfig("reconnect.backoff.max.ms", "is less than reconnect.backoff.ms")
    if settings.retry_backoff_max_ms < settings.retry_backoff_ms:
        raise BadConfig("retry.backoff.max.ms", "is less than retry.backoff.ms")
    if settings.heartbeat_interval_ms >= settings.session_timeout_ms:
        raise BadConfig("heartbeat.interval.ms", "must be less than session.timeout.ms")
    if settings.fetch_wait_max_ms >= settings.socket_timeout_ms:
        raise BadConfig("fetch.wait.max.ms", "must be less than socket.timeout.ms")


# --- a properties file of Kafka's own clients ---------------------------------------------------

_LOGIN_MODULES: Final = ("PlainLoginModule", "ScramLoginModule")
_JAAS_OPTION: Final = (
    r"""(?:\s+|(?<=["']))([\w.-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';]+))"""
)
_JAAS: Final = re.compile(
    rf"\s*(?P<module>[\w.$]+)\s+\w+(?P<options>(?:{_JAAS_OPTION})*)\s*;\s*", re.DOTALL
)
_STORE_HINT: Final = "is no PEM file: only stores of the type PEM are read"


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of a Java properties file; a key that comes twice counts as written last.

    Comments, continued lines and escapes are Java's.
    """
    found: dict[str, str] = {}
    # Not str.splitlines, for which a form feed and several letters end a line too.
    lines = iter(re.split(r"\r\n|[\r\n]", text))
    for line in lines:
        whole = line.lstrip(" \t\f")
        if not whole or whole[0] in "#!":
            continue
        while _is_continued(whole):
            whole = whole[:-1] + next(lines, "").lstrip(" \t\f")
        key, value = _split_property(whole)
        found[_unescaped(key)] = _unescaped(value)
    return found


def librdkafka_names(given: Mapping[str, str]) -> tuple[dict[str, object], tuple[str, ...]]:
    """What a file of Kafka's Java clients says, by librdkafka's names, and what means nothing here.

    Credentials in `sasl.jaas.config` and stores of the type PEM are understood. Raises BadConfig
    for other stores and login modules: they would promise security that is not given.
    """
    ignored = JAVA_IGNORED & given.keys()
    said = {key: given[key] for key in given if key not in ignored | _JAVA_SECURITY}
    credentials = _credentials(given.get("sasl.jaas.config", ""))
    config = {**credentials, **said, **_trusted(given), **_own(given)}
    return config, tuple(sorted(ignored))


_JAVA_SECURITY: Final = frozenset(
    {
        "sasl.jaas.config",
        *(f"ssl.truststore.{part}" for part in ("type", "location", "password", "certificates")),
        *(f"ssl.keystore.{part}" for part in ("type", "location", "password", "key")),
        "ssl.keystore.certificate.chain",
    }
)
"""What is said otherwise by librdkafka's names."""


def _credentials(jaas: str) -> dict[str, object]:
    """The name and the password of a `sasl.jaas.config`; no text repeats either."""
    if not jaas.strip():
        return {}
    found = _JAAS.fullmatch(jaas)
    if found is None:
        raise BadConfig(
            "sasl.jaas.config", 'is written: MODULE required username="..." password="...";'
        )
    module = found["module"].rpartition(".")[2]
    if module not in _LOGIN_MODULES:
        known = " and ".join(_LOGIN_MODULES)
        raise BadConfig("sasl.jaas.config", f"{module} is not supported; {known} are")
    options = {
        name: re.sub(r"\\(.)", r"\1", quoted or single or plain)
        for name, quoted, single, plain in re.findall(_JAAS_OPTION, found["options"], re.DOTALL)
    }
    return {f"sasl.{name}": options[name] for name in ("username", "password") if name in options}


def _trusted(given: Mapping[str, str]) -> dict[str, object]:
    """Whom to trust."""
    _check_store(given, "ssl.truststore")
    named = {
        "ssl.ca.location": given.get("ssl.truststore.location"),
        "ssl.ca.pem": given.get("ssl.truststore.certificates"),
    }
    return {key: value for key, value in named.items() if value}


def _own(given: Mapping[str, str]) -> dict[str, object]:
    """Our certificate and its key, which a PEM store has in one file."""
    _check_store(given, "ssl.keystore")
    named = {
        "ssl.certificate.location": given.get("ssl.keystore.location"),
        "ssl.certificate.pem": given.get("ssl.keystore.certificate.chain"),
        "ssl.key.pem": given.get("ssl.keystore.key"),
    }
    return {key: value for key, value in named.items() if value}


def _check_store(given: Mapping[str, str], store: str) -> None:
    """A store is PEM if it says so, or if its name does: Java's own kinds cannot be read here."""
    location, kind = given.get(f"{store}.location", ""), given.get(f"{store}.type", "")
    is_named_pem = not kind and location.lower().endswith((".pem", ".crt"))
    if location and kind.upper() != "PEM" and not is_named_pem:
        raise BadConfig(f"{store}.location", f"{_STORE_HINT} ({store}.type=PEM)")
    if given.get(f"{store}.password"):
        raise BadConfig(f"{store}.password", "a store of the type PEM has none")


def _is_continued(line: str) -> bool:
    """Whether it ends in a backslash that is not itself escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split_property(line: str) -> tuple[str, str]:
    """A key ends at the first =, : or white space that is not escaped."""
    found = re.match(r"((?:[^\s=:\\]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
    assert found is not None, "every part may be empty"
    return found[1], found[2]


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        if found[1] is not None:
            return chr(int(found[1], 16))
        return {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}.get(found[2], found[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.?))", character, text, flags=re.DOTALL)
