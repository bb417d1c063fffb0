"""Emulators of GCS and Azure for tests, each a process of its own on a free port of loopback.

They come from Go's and npm's registries and not from PyPI, so `make test` runs without them:
`python -m tests.conformance.emulators` puts them into the cache, and whoever has one elsewhere
names it by the environment (`FAKE_GCS_SERVER`, `AZURITE_BLOB`) or has it on the path. The keys
here are the emulators' own, which everybody knows.
"""

import base64
import hashlib
import hmac
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from bench.peer import cache_directory

FAKE_GCS = "github.com/fsouza/fake-gcs-server@v1.56.1"
AZURITE = "azurite@3.35.0"
BUCKET = "lakelog"
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
START_S = 30.0
FETCH_S = 900.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Emulator:
    """A server that runs: the URL of its bucket, and what obstore is told besides."""

    url: str
    options: Mapping[str, str]


def emulators_directory() -> Path:
    return cache_directory() / "emulators"


def fake_gcs_binary() -> str | None:
    return _found("FAKE_GCS_SERVER", "fake-gcs-server", emulators_directory() / "bin")


def azurite_binary() -> str | None:
    if shutil.which("node") is None:
        return None
    return _found("AZURITE_BLOB", "azurite-blob", emulators_directory() / "node_modules" / ".bin")


def _found(variable: str, name: str, folder: Path) -> str | None:
    return os.environ.get(variable) or shutil.which(name) or shutil.which(name, path=folder)


@contextmanager
def fake_gcs() -> Iterator[Emulator]:
    """fake-gcs-server, with one empty bucket."""
    binary = fake_gcs_binary()
    assert binary is not None
    port = free_port()
    at = f"127.0.0.1:{port}"
    arguments = ["-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    with running([binary, *arguments, "-public-host", at], port), uploads(port) as front:
        body = json.dumps({"name": BUCKET}).encode()
        made = asked(port, "POST", "/storage/v1/b?project=x", {}, body)
        assert made == 200, made
        base = f"http://127.0.0.1:{front}"
        account = {"gcs_base_url": base, "disable_oauth": True, "private_key_id": ""}
        key = json.dumps({**account, "private_key": "", "client_email": ""})
        yield Emulator(f"gs://{BUCKET}", {"base_url": base, "service_account_key": key})


@contextmanager
def azurite() -> Iterator[Emulator]:
    """Azurite's blob service, with one empty container."""
    binary = azurite_binary()
    assert binary is not None
    port = free_port()
    arguments = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"]
    with running([binary, *arguments, "--silent", "--disableTelemetry"], port):
        date, version = formatdate(usegmt=True), "2021-08-06"
        resource = f"/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
        wanted = f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{version}\n{resource}"
        digest = hmac.digest(base64.b64decode(ACCOUNT_KEY), wanted.encode(), hashlib.sha256)
        signed = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        headers = {"x-ms-date": date, "x-ms-version": version, "Authorization": signed}
        made = asked(port, "PUT", f"/{ACCOUNT}/{BUCKET}?restype=container", headers, b"")
        assert made == 201, made
        yield Emulator(
            f"az://{BUCKET}",
            {
                "account_name": ACCOUNT,
                "account_key": ACCOUNT_KEY,
                "endpoint": f"http://127.0.0.1:{port}/{ACCOUNT}",
            },
        )


@contextmanager
def running(command: Sequence[str], port: int) -> Iterator[None]:
    """The process, from its first answer to the end of the block."""
    with tempfile.TemporaryDirectory(prefix="lakelog-emulator-") as folder:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={"PATH": os.environ.get("PATH", ""), "HOME": folder},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_ready(process, port)
            yield
        finally:
            process.kill()
            process.wait()


def wait_ready(process: "subprocess.Popen[bytes]", port: int) -> None:
    pause = threading.Event()
    for _ in range(int(START_S / POLL_S)):
        assert process.poll() is None, f"the emulator ended with {process.returncode}"
        try:
            asked(port, "GET", "/", {}, b"")
        except OSError:
            pause.wait(POLL_S)
        else:
            return
    raise AssertionError(f"the emulator did not answer within {START_S:g} s")


def asked(port: int, method: str, path: str, headers: Mapping[str, str], body: bytes) -> int:
    """The status of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body, {"Content-Length": str(len(body)), **headers})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class FrontServer(ThreadingHTTPServer):
    """Takes as many connections at once as a store is asked for."""

    request_queue_size = 1024
    daemon_threads = True


@contextmanager
def uploads(port: int) -> Iterator[int]:
    """A port before fake-gcs-server's that gives it uploads in the way that it takes them.

    obstore uploads by a PUT of the XML API. The emulator takes it only with a signature, which
    nobody checks, so the word that says that there is one is added; and it answers as the JSON API
    does, with the ETag in the body, so that is put into a header. All else goes through as it is.
    """

    class Front(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            path = self.path
            if self.command == "PUT":
                path += ("&" if "?" in path else "?") + "X-Goog-Algorithm=none"
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            try:
                headers = {
                    name: one for name, one in self.headers.items() if name.lower() != "host"
                }
                connection.request(self.command, path, body or None, headers)
                answer = connection.getresponse()
                content = answer.read()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                        self.send_header(name, value)
                if self.command == "PUT" and answer.status == HTTPStatus.OK:
                    self.send_header("ETag", json.loads(content)["etag"])
                size = answer.getheader("Content-Length") if self.command == "HEAD" else None
                self.send_header("Content-Length", size or str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            finally:
                connection.close()

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = forward  # noqa: N815 - http.server's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base
            """Say nothing."""

    server = FrontServer(("127.0.0.1", 0), Front)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def fetch() -> int:
    """Put both into the cache, as far as their tools are here; how many could not be had."""
    folder = emulators_directory()
    folder.mkdir(parents=True, exist_ok=True)
    missing = 0
    for tool, command, environment in (
        ("go", ["install", FAKE_GCS], {"GOBIN": str(folder / "bin")}),
        ("npm", ["install", "--no-audit", "--no-fund", "--prefix", str(folder), AZURITE], {}),
    ):
        found = shutil.which(tool)
        done = found and subprocess.run(
            [found, *command], env={**os.environ, **environment}, timeout=FETCH_S, check=False
        )
        if not done or done.returncode:
            print(f"no {tool}, or it failed: {command[1]} is not in the cache")
            missing += 1
    return missing


if __name__ == "__main__":
    sys.exit(1 if fetch() else 0)
