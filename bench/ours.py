"""Our broker as a process: the command that a user would type, on loopback and a directory."""

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.broker import HOST, Launch, ProcessBroker, free_ports


def launch_ours(
    data: Path,
    *,
    port: int | None = None,
    http_port: int | None = None,
    broker_id: int | None = None,
    core: int | None = None,
    settings: Sequence[str] = (),
) -> ProcessBroker:
    """Start our broker on this data directory without waiting for it."""
    free = free_ports(2)
    port = free[0] if port is None else port
    http_port = free[1] if http_port is None else http_port
    data.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "lakelog.cli.main", "serve"),
        *("--listen", f"{HOST}:{port}", "--http", f"{HOST}:{http_port}", "--data", str(data)),
    ]
    if broker_id is not None:
        command += ["--broker-id", str(broker_id)]
    for setting in settings:
        command += ["--set", setting]
    # Beside the data, not in it: a broker may want its directory to itself.
    log_path = data.with_name(f"{data.name}.log")
    return ProcessBroker(Launch("ours", command, port, log_path, core=core))


def start_ours(
    data: Path,
    *,
    port: int | None = None,
    http_port: int | None = None,
    broker_id: int | None = None,
    core: int | None = None,
) -> ProcessBroker:
    """Start our broker on this data directory and return when it serves."""
    broker = launch_ours(data, port=port, http_port=http_port, broker_id=broker_id, core=core)
    broker.wait_ready()
    return broker
