"""TLS as librdkafka's settings describe it, and its failures in words.

Rules: certificates are verified, and so is the host's name, unless the settings say otherwise;
nothing older than TLS 1.2 is spoken.
"""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from lakelog.kafka_client.failures import BadConfig, ClientFailure, Unreachable, Untrusted
from lakelog.kafka_client.setting_keys import BrokerAddress
from lakelog.kafka_client.settings import ClientSettings

SYSTEM_CAS: Final = ("", "probe")
"""Values of `ssl.ca.location` that stand for what the system trusts."""

_CERTIFICATE_LOCATION: Final = "ssl.certificate.location"
_WANTS_OURS: Final = (
    "the broker wants a certificate that it trusts (ssl.certificate.location, ssl.key.location)"
)
_HINTS: Final = {
    "CERTIFICATE_VERIFY_FAILED": "set ssl.ca.location to the certificate of who signed it",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": _WANTS_OURS,
    "SSLV3_ALERT_BAD_CERTIFICATE": _WANTS_OURS,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _WANTS_OURS,
    "SSLV3_ALERT_HANDSHAKE_FAILURE": _WANTS_OURS,
    "TLSV1_ALERT_UNKNOWN_CA": _WANTS_OURS,
}
_OTHER_HOST: Final = (62, 64)  # OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and ..._IP_ADDRESS_MISMATCH


def tls_context(settings: ClientSettings) -> ssl.SSLContext | None:
    """What connections are encrypted with, or None; reads files. Raises BadConfig."""
    if not settings.has_tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    checks_name = settings.ssl_endpoint_identification_algorithm == "https"
    context.check_hostname = checks_name and settings.enable_ssl_certificate_verification
    if not settings.enable_ssl_certificate_verification:
        context.verify_mode = ssl.CERT_NONE
    _load_trusted(context, settings)
    _load_own(context, settings)
    return context


def tls_failure(endpoint: BrokerAddress, reason: ssl.SSLError) -> ClientFailure:
    """A failed handshake, or what ended an encrypted connection, in words."""
    if reason.reason in ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "HTTP_REQUEST"):
        return Unreachable(
            f"{endpoint} does not speak TLS, or ended it ({_named(reason)}): "
            "is security.protocol right?",
            is_final=reason.reason != "UNEXPECTED_EOF_WHILE_READING",
        )
    if isinstance(reason, ssl.SSLCertVerificationError):
        said = reason.verify_message.rstrip(".")
        hint = "" if reason.verify_code in _OTHER_HOST else _hint(reason)
        return Untrusted(f"{endpoint} is not trusted: {said}{hint}")
    return Untrusted(f"TLS with {endpoint} failed: {_named(reason)}{_hint(reason)}")


def _named(reason: ssl.SSLError) -> str:
    return reason.reason.replace("_", " ").lower() if reason.reason else str(reason)


def _hint(reason: ssl.SSLError) -> str:
    found = _HINTS.get(reason.reason or "")
    return f"; {found}" if found else ""


def _load_trusted(context: ssl.SSLContext, settings: ClientSettings) -> None:
    location = settings.ssl_ca_location
    try:
        if settings.ssl_ca_pem:
            context.load_verify_locations(cadata=settings.ssl_ca_pem)
        elif location in SYSTEM_CAS:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        elif os.path.isdir(location):
            context.load_verify_locations(capath=location)
        else:
            context.load_verify_locations(cafile=location)
    except (OSError, ValueError) as reason:
        key = "ssl.ca.pem" if settings.ssl_ca_pem else "ssl.ca.location"
        raise BadConfig(key, f"cannot be used: {_why(reason)}") from None


def _load_own(context: ssl.SSLContext, settings: ClientSettings) -> None:
    with (
        _file(settings.ssl_certificate_pem, settings.ssl_certificate_location) as certificate,
        _file(settings.ssl_key_pem, settings.ssl_key_location) as key,
    ):
        if not certificate:
            return
        try:
            # Without a password of ours OpenSSL would ask at the terminal.
            context.load_cert_chain(certificate, key or None, lambda: settings.ssl_key_password)
        except (OSError, ValueError) as reason:
            name = "ssl.certificate.pem" if settings.ssl_certificate_pem else _CERTIFICATE_LOCATION
            raise BadConfig(name, f"cannot be used: {_why(reason)}") from None


@contextmanager
def _file(pem: str, location: str) -> Iterator[str]:
    """A file with this text, for as long as OpenSSL reads it: it takes a key from nowhere else."""
    if not pem:
        yield location
        return
    import tempfile  # noqa: PLC0415 - slow to import, and seldom needed

    descriptor, path = tempfile.mkstemp(suffix=".pem")  # readable by us alone
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(pem)
        yield path
    finally:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _why(reason: Exception) -> str:
    if isinstance(reason, ssl.SSLError):
        # OpenSSL has no reason of its own for a key that a wrong password does not open.
        return _named(reason) if reason.reason else "is it PEM, and is ssl.key.password right?"
    return reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
