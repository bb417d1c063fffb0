"""A TCP proxy between a node and a broker that counts bytes, and can be cut and mended."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self

CHUNK_BYTES = 65_536


class Proxy:
    """Listens on loopback, forwards to `target`; while it is cut it hangs up at once."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.target = ("127.0.0.1", 0)
        self.byte_count = 0
        self._is_cut = False
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        """Break all connections, and every new one, until it is mended."""
        with self._lock:
            self._is_cut = True
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Forward again."""
        with self._lock:
            self._is_cut = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._is_cut:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(self.target)
                except OSError:
                    near.close()
                    continue
                self._open |= {near, far}
            for source, sink in ((near, far), (far, near)):
                thread = threading.Thread(target=self._forward, args=(source, sink))
                self._threads.append(thread)
                thread.start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                with self._lock:
                    self.byte_count += len(data)
                sink.sendall(data)
        with self._lock:
            self._open.discard(source)
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)
        if sink not in self._open:
            source.close()
            sink.close()
