"""Certificates for tests, made with `openssl`: an authority, what it signed, and a stranger."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

DAYS = "2"
KEY_PASSWORD = "key-secret"


@dataclass(frozen=True)
class Certificates:
    """PEM files: `ca` signed `server` (for 127.0.0.1 and localhost) and `client`."""

    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path
    client_locked_key: Path  # the same key behind KEY_PASSWORD
    other_server: Path  # signed by `ca` too, for a host that is not this one
    other_server_key: Path
    stranger: Path  # signed by itself


def make_certificates(folder: Path) -> Certificates:
    folder.mkdir(parents=True, exist_ok=True)
    ca, ca_key = _self_signed(folder, "ca")
    stranger, _ = _self_signed(folder, "stranger")
    names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
    server, server_key = _signed(folder, "server", ca, ca_key, names)
    other, other_key = _signed(folder, "other", ca, ca_key, "subjectAltName=DNS:broker.example")
    client, client_key = _signed(folder, "client", ca, ca_key, "extendedKeyUsage=clientAuth")
    locked = folder / "client-locked.key"
    _openssl(
        *("pkcs8", "-topk8", "-in", str(client_key), "-out", str(locked)),
        *("-passout", f"pass:{KEY_PASSWORD}"),
    )
    return Certificates(
        ca, server, server_key, client, client_key, locked, other, other_key, stranger
    )


def _self_signed(folder: Path, name: str) -> tuple[Path, Path]:
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    _openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", DAYS, "-subj", f"/CN={name}"),
        *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        *("-keyout", str(key), "-out", str(certificate)),
    )
    return certificate, key


def _signed(folder: Path, name: str, ca: Path, ca_key: Path, extension: str) -> tuple[Path, Path]:
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
    extensions.write_text(f"{extension}\nbasicConstraints=CA:FALSE\n")
    _openssl(
        *("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"),
        *("-keyout", str(key), "-out", str(request)),
    )
    _openssl(
        *("x509", "-req", "-in", str(request), "-CA", str(ca), "-CAkey", str(ca_key)),
        *("-CAcreateserial", "-days", DAYS, "-extfile", str(extensions), "-out", str(certificate)),
    )
    return certificate, key


def has_openssl() -> bool:
    return shutil.which("openssl") is not None


def _openssl(*arguments: str) -> None:
    done = subprocess.run(
        ["openssl", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
