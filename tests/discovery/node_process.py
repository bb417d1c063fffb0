"""A node of discovery as a process of its own: it can be killed, stopped and let go on.

Run as a program it is the node: the settings come as JSON in the first argument, and after every
change it prints a line with all that it knows. A line on standard input has it leave in good order.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from lakelog.discovery import KafkaDiscovery, KafkaDiscoveryConfig, NodeMetadata

WAIT_S_MAX = 30.0
Status = dict[str, Any]


def status(node: KafkaDiscovery) -> Status:
    """All that a node knows, as JSON."""
    return {
        "state": node.state.value,
        "generation": node.generation,
        "leader": node.leader,
        "peers": sorted(str(each.node_id) for each in node.peers()),
        "partitions": sorted(node.assigned_partitions()),
    }


class NodeProcess:
    """The process, seen by a test."""

    def __init__(self, **config: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.discovery.node_process", json.dumps(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._heard: list[Status] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait(self, what: Callable[[Status], bool], timeout_s: float = WAIT_S_MAX) -> Status:
        """The first status from now on, the last one included, of which that is true."""
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            seen = max(len(self._heard) - 1, 0)
            while True:
                for found in self._heard[seen:]:
                    if what(found):
                        return found
                seen = len(self._heard)
                left_s = deadline_s - time.monotonic()
                assert left_s > 0, f"not within {timeout_s} s; the last were {self._heard[-3:]}"
                self._changed.wait(left_s)

    def heard(self) -> list[Status]:
        """Every status so far."""
        with self._changed:
            return list(self._heard)

    def kill(self) -> None:
        """End it at once, as a power cut does."""
        self._process.kill()
        self._ended()

    def freeze(self) -> None:
        """Stop it in its tracks."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self._process.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Have it leave in good order."""
        assert self._process.stdin is not None
        self._process.stdin.write("stop\n")
        self._process.stdin.flush()
        assert self._process.wait(WAIT_S_MAX) == 0
        self._ended()

    def _ended(self) -> None:
        self._process.wait(WAIT_S_MAX)
        self._reader.join(WAIT_S_MAX)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._heard.append(json.loads(line))
                self._changed.notify_all()


def main() -> None:
    """Be the node."""
    settings = json.loads(sys.argv[1])
    cores = settings.pop("cores", 1)
    node = KafkaDiscovery(KafkaDiscoveryConfig(**settings, metadata=NodeMetadata(cores=cores)))

    turn = threading.Lock()

    def tell(_: object) -> None:
        with turn:
            print(json.dumps(status(node)), flush=True)

    for listen in (node.on_change, node.on_assigned, node.on_revoked):
        listen(tell)
    node.start()
    tell(None)
    sys.stdin.readline()
    node.stop()
    tell(None)


if __name__ == "__main__":
    main()
