"""The saturating client keeps to its window, counts by bytes, and looks at every answer."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aiokafka.record.memory_records import MemoryRecords
from bench.jobs import SaturateJob
from bench.raw import KafkaError, batch, string
from bench.saturate import Requests, Stream, drive, records_in

JOB = SaturateJob(
    topic="t",
    partitions=4,
    record_bytes=100,
    batch_bytes=1_000,
    seconds=1.0,
    bytes_max=1 << 20,
    in_flight=4,
)
MANY = SaturateJob(
    topic="t",
    partitions=16,
    record_bytes=100,
    batch_bytes=1_000,
    seconds=1.0,
    bytes_max=1 << 20,
    in_flight=4,
    request_partitions=16,
)


def answer(correlation_id: int, *errors: int) -> bytes:
    rows = (struct.pack(">ihqqq", at, error, 7, -1, 0) for at, error in enumerate(errors))
    head = struct.pack(">i", 1) + string("t") + struct.pack(">i", len(errors))
    body = struct.pack(">i", correlation_id) + head + b"".join(rows) + struct.pack(">i", 0)
    return struct.pack(">i", len(body)) + body


def read(connection: socket.socket, size: int) -> bytes:
    taken = b""
    while len(taken) < size:
        taken += connection.recv(size - len(taken))
    return taken


@contextmanager
def connected(
    requests: Requests, window: int, frames_max: int
) -> Iterator[tuple[Stream, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        stream = Stream(server.getsockname()[1], requests, window, frames_max)
        broker, _ = server.accept()
        with broker, stream.socket:
            yield stream, broker


@pytest.mark.parametrize(
    ("record_bytes", "batch_bytes"), [(100, 1_000), (100, 16_384), (1_024, 10**6)]
)
def test_as_many_records_go_into_a_batch_as_fit(record_bytes: int, batch_bytes: int) -> None:
    count = records_in(batch_bytes, record_bytes)
    assert len(batch([bytes(record_bytes)] * count, 1)) <= batch_bytes
    assert len(batch([bytes(record_bytes)] * (count + 2), 1)) > batch_bytes


@pytest.mark.parametrize("job", [JOB, MANY])
def test_every_frame_has_one_size_and_batches_that_others_read(job: SaturateJob) -> None:
    requests = Requests(job)
    assert requests.count * requests.frame_bytes == len(requests.ring)
    last = bytes(requests.ring[-requests.batch_bytes :])
    parsed = MemoryRecords(last).next_batch()
    assert parsed.validate_crc()
    assert len(list(parsed)) * job.request_partitions == requests.records


def test_the_frames_come_to_all_partitions_in_turn() -> None:
    requests = Requests(JOB)
    place = requests.frame_bytes - requests.batch_bytes - 8
    partitions = [
        struct.unpack_from(">i", requests.ring, at * requests.frame_bytes + place)[0]
        for at in range(8)
    ]
    assert partitions == [0, 1, 2, 3, 0, 1, 2, 3]


def test_good_answers_pass_in_their_order_around_the_ring() -> None:
    requests = Requests(JOB)
    begun = requests.count - 1
    requests.check(memoryview(answer(begun, 0) + answer(0, 0)), begun)
    with pytest.raises(KafkaError, match="something else"):
        requests.check(memoryview(answer(1, 0) + answer(0, 0)), 0)


def test_an_error_of_any_partition_is_raised() -> None:
    requests = Requests(MANY)
    fine = answer(0, *[0] * 16)
    bad = answer(1, *[0] * 15, 6)
    assert len(fine) == requests.answer_bytes
    requests.check(memoryview(fine), 0)
    with pytest.raises(KafkaError, match="answered 6"):
        requests.check(memoryview(fine + bad), 0)


def test_no_more_than_the_window_is_without_an_answer() -> None:
    requests = Requests(JOB)
    with connected(requests, window=3, frames_max=5) as (stream, broker):
        while stream.has_work():
            stream.send()
        assert read(broker, 3 * requests.frame_bytes) == requests.ring[: 3 * requests.frame_bytes]
        broker.sendall(answer(0, 0) + answer(1, 0)[:9])
        while not stream.answered:
            stream.receive()
        stream.send()
        read(broker, requests.frame_bytes)
        assert not stream.has_work()
        broker.sendall(answer(1, 0)[9:])
        while stream.answered < 2:
            stream.receive()
        stream.send()
        assert not stream.has_work(), "five are all"
        stream.finish()
        assert not stream.is_done()


def test_it_ends_when_all_that_was_begun_is_answered() -> None:
    requests = Requests(JOB)

    def serve(broker: socket.socket) -> None:
        for index in range(10):
            read(broker, requests.frame_bytes)
            broker.sendall(answer(index, 0))

    with connected(requests, window=2, frames_max=10) as (stream, broker):
        thread = threading.Thread(target=serve, args=(broker,))
        thread.start()
        drive([stream], float("inf"))
        thread.join()
    assert stream.answered == 10


def test_a_job_whose_time_is_over_begins_nothing() -> None:
    requests = Requests(JOB)
    with connected(requests, window=2, frames_max=10) as (stream, _):
        drive([stream], 0.0)
    assert stream.answered == 0
