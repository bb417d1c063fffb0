"""A client process on bare sockets that keeps a broker busy with prepared requests.

Rules: it shares no code with the broker. All frames of a job have one size, and so have all
answers, so that frames and answers are counted by bytes. Every answer is looked at: its size, its
correlation id, the error code of every partition. A connection sends as long as less than its share
of the window is without an answer; nothing is sent twice.
"""

import select
import socket
import time

import numpy as np

from bench.broker import HOST
from bench.jobs import Outcome, SaturateJob, serve, wait_for_go
from bench.payload import payloads
from bench.raw import PRODUCE, PRODUCE_VERSION, KafkaError, batch, frame, produce_body, string

RING_BYTES_MIN = 1 << 20
RECEIVE_BYTES = 1 << 20
SILENCE_S_MAX = 60.0
HEADER_BYTES = 61
"""Of a record batch."""
PARTITION_BYTES = 30
"""What an answer says of a partition: index, error, base offset, append time, log start."""


def records_in(batch_bytes: int, record_bytes: int) -> int:
    """Return how many records of one size fit into a batch, at least one."""
    some = 200
    each = (len(batch([bytes(record_bytes)] * some, 1)) - HEADER_BYTES) / some
    return max(int((batch_bytes - HEADER_BYTES) / each), 1)


class Requests:
    """The frames of a job as one ring, and what a right answer to each looks like."""

    def __init__(self, job: SaturateJob) -> None:
        self.records = records_in(job.batch_bytes, job.record_bytes) * job.request_partitions
        self.value_bytes = self.records * job.record_bytes
        per_batch = self.records // job.request_partitions
        pool = payloads(job.record_bytes, 0.25, job.seed) * (per_batch // 1_000 + 2)
        now_ms = time.time_ns() // 1_000_000
        batches = [batch(pool[start : start + per_batch], now_ms) for start in range(8)]
        turns = -(-job.partitions // job.request_partitions)
        rings = max(-(-RING_BYTES_MIN // (turns * len(batches[0]) * job.request_partitions)), 1)
        frames = []
        for index in range(turns * rings):
            first = index * job.request_partitions
            places = range(first, first + job.request_partitions)
            body = produce_body(
                job.topic, [(at % job.partitions, batches[at % len(batches)]) for at in places]
            )
            frames.append(frame(PRODUCE, PRODUCE_VERSION, index, body))
        assert len({len(one) for one in frames}) == 1, "frames are counted by their bytes"
        self.ring = memoryview(b"".join(frames))
        self.count = len(frames)
        self.frame_bytes = len(frames[0])
        self.batch_bytes = len(batches[0])
        self.partitions = job.request_partitions
        self.places_at = 8 + 4 + len(string(job.topic)) + 4
        self.answer_bytes = self.places_at + self.partitions * PARTITION_BYTES + 4

    def check(self, answers: memoryview, begun: int) -> None:
        """Raise unless these are good answers to the frames from `begun` on."""
        rows = np.frombuffer(answers, np.uint8).reshape(-1, self.answer_bytes)
        head = np.ascontiguousarray(rows[:, :8]).view(">i4")
        expected = np.arange(begun, begun + len(rows)) % self.count
        if (head[:, 0] != self.answer_bytes - 4).any() or (head[:, 1] != expected).any():
            raise KafkaError(f"produce answered something else: {bytes(rows[0][:64])!r}")
        tail = rows[:, self.places_at : self.places_at + self.partitions * PARTITION_BYTES]
        places = tail.reshape(-1, PARTITION_BYTES)
        if places[:, 4:6].any():
            codes = np.ascontiguousarray(places[:, 4:6]).view(">i2")
            raise KafkaError(f"produce answered {int(codes[codes != 0][0])}")


class Stream:
    """One connection: how far it has sent, and what was answered."""

    def __init__(self, port: int, requests: Requests, window: int, frames_max: int) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=SILENCE_S_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.answered = 0
        self._requests = requests
        self._window = window
        self._frames_max = frames_max
        self._sent_bytes = 0
        self._memory = memoryview(bytearray(RECEIVE_BYTES))
        self._held_bytes = 0

    def is_done(self) -> bool:
        """Whether all that it shall send was answered."""
        return self.answered >= self._frames_max

    def finish(self) -> None:
        """Begin no further frame."""
        begun = -(-self._sent_bytes // self._requests.frame_bytes)
        self._frames_max = min(self._frames_max, begun)

    def has_work(self) -> bool:
        """Whether the window has room for what is to be sent."""
        return self._limit_bytes() > self._sent_bytes

    def send(self) -> None:
        """Send until the window, the ring or the socket is full."""
        ring = self._requests.ring
        at = self._sent_bytes % len(ring)
        end = min(at + self._limit_bytes() - self._sent_bytes, len(ring))
        try:
            self._sent_bytes += self.socket.send(ring[at:end])
        except BlockingIOError:
            return

    def receive(self) -> None:
        """Take what has come and check all whole answers."""
        count = self.socket.recv_into(self._memory[self._held_bytes :])
        if not count:
            raise ConnectionError("the broker closed the connection")
        held = self._held_bytes + count
        whole = held // self._requests.answer_bytes
        used = whole * self._requests.answer_bytes
        if whole:
            self._requests.check(self._memory[:used], self.answered)
            self.answered += whole
            self._memory[: held - used] = bytes(self._memory[used:held])
        self._held_bytes = held - used

    def _limit_bytes(self) -> int:
        return min(self.answered + self._window, self._frames_max) * self._requests.frame_bytes


def saturate(job: SaturateJob) -> Outcome:
    """Send as fast as the window lets, until the time or the bytes are used up."""
    requests = Requests(job)
    port = int(job.bootstrap.rpartition(":")[2])
    share = max(job.bytes_max // requests.value_bytes // job.connections, 1)
    window = max(job.in_flight // job.connections, 1)
    streams = [Stream(port, requests, window, share) for _ in range(job.connections)]
    wait_for_go()
    started = time.perf_counter()
    drive(streams, started + job.seconds)
    seconds = time.perf_counter() - started
    answered = sum(stream.answered for stream in streams)
    for stream in streams:
        stream.socket.close()
    return Outcome(
        payload_bytes=answered * requests.value_bytes,
        records=answered * requests.records,
        seconds=seconds,
        requests=answered,
        batch_bytes=float(requests.batch_bytes),
    )


def drive(streams: list[Stream], until: float) -> None:
    """Keep every connection's window full until then, and wait for what is under way."""
    by_number = {stream.socket.fileno(): stream for stream in streams}
    poll = select.poll()
    for number in by_number:
        poll.register(number, select.POLLIN)
    is_open = True
    while not all(stream.is_done() for stream in streams):
        if is_open and time.perf_counter() >= until:
            is_open = False
            for stream in streams:
                stream.finish()
            continue
        for number, stream in by_number.items():
            if stream.has_work():
                stream.send()
            waits = select.POLLOUT if stream.has_work() else 0
            poll.modify(number, select.POLLIN | waits)
        ready = poll.poll(SILENCE_S_MAX * 1e3)
        if not ready:
            raise KafkaError(f"no answer for {SILENCE_S_MAX:.0f} s")
        for number, events in ready:
            if events & ~select.POLLOUT:
                by_number[number].receive()


if __name__ == "__main__":
    serve(SaturateJob, saturate)
