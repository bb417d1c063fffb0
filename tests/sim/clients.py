"""Clients of the simulated brokers: they retry, move, give up, and write down what they heard."""

import asyncio
from collections.abc import Sequence

from tests.sim.log_cluster import LogBroker, LogCluster

from lakelog.domain.state import Verdict
from lakelog.log.values import Appended, Fetched, ReadStatus
from lakelog.model.failures import Failure, OutcomeUnknown, Unavailable
from lakelog.records.acceptance import AcceptedBatch
from lakelog.records.build import BatchOptions, Record, build_batch
from lakelog.records.header import (
    HEADER_BYTES,
    parse_header,
    read_varint,
    read_varlong,
    split_batches,
)
from lakelog.testing.invariants import HeardRead, OperationOutcome, Sent
from lakelog.testing.simulation import SimEntropy

CLIENT_TIMEOUT_S = 2.5
IN_FLIGHT_MAX = 5


def make_batch(
    values: Sequence[str], *, now_ms: int, producer: int, sequence: int
) -> AcceptedBatch:
    """A batch as `records.inspect` would have accepted it."""
    epoch = 0 if producer >= 0 else -1
    records = [Record(None, value.encode(), now_ms + at) for at, value in enumerate(values)]
    options = BatchOptions(producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    return AcceptedBatch(
        data=memoryview(build_batch(records, options)),
        record_count=len(values),
        offset_count=len(values),
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        min_timestamp_ms=now_ms,
        max_timestamp_ms=now_ms + len(values) - 1,
        append_time_ms=-1,
        transactional=False,
    )


def records_of(fetched: Fetched) -> list[tuple[int, str]]:
    """Offset and value of every record that was fetched."""
    found = []
    for batch in split_batches(memoryview(b"".join(fetched.parts))):
        header = parse_header(batch)
        place, end = HEADER_BYTES, len(batch)
        for _ in range(header.record_count):
            _, place = read_varint(batch, place, end)
            _, place = read_varlong(batch, place + 1, end)
            delta, place = read_varint(batch, place, end)
            _, place = read_varint(batch, place, end)  # the key is null
            length, place = read_varint(batch, place, end)
            found.append((header.base_offset + delta, str(batch[place : place + length], "utf-8")))
            _, place = read_varint(batch, place + length, end)
    return found


class Client:
    """What producers and consumers share: a broker they talk to, and another when it is bad."""

    def __init__(self, cluster: LogCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.dice: SimEntropy = cluster.loop.dice(name)
        self.connections = 0
        self._broker: LogBroker | None = None

    async def broker(self) -> LogBroker:
        """The broker in use, or another one once that is gone."""
        while True:
            if self._broker is not None and self._broker in self.cluster.running():
                return self._broker
            running = self.cluster.running()
            if running:
                self._broker = self.dice.pick(running)
                self.connections += 1
                return self._broker
            await asyncio.sleep(0.05)

    def leave(self) -> None:
        """Choose anew next time: it may be the same one."""
        self._broker = None

    def now_s(self) -> float:
        return self.cluster.loop.time()


class Producer(Client):
    """Sends batches with unique values to one stream, several in flight.

    Like Kafka's clients, it is never more than five batches ahead of its oldest unanswered one.
    """

    def __init__(self, cluster: LogCluster, name: str, stream: int, *, producer: int) -> None:
        super().__init__(cluster, name)
        self.stream = stream
        self.producer = producer
        self.sequence = 0
        self.number = 0
        self._waiting: set[int] = set()
        self._answered = asyncio.Event()

    async def run(self, until_s: float, *, pause_s: float) -> None:
        """Send until then, and wait for every answer."""
        async with asyncio.TaskGroup() as group:
            while self.now_s() < until_s:
                while self._waiting and self.number - min(self._waiting) >= IN_FLIGHT_MAX:
                    self._answered.clear()
                    await self._answered.wait()
                values = tuple(
                    f"{self.stream}/{self.name}/{self.number}.{at}"
                    for at in range(self.dice.number(1, 4))
                )
                self._waiting.add(self.number)
                broker = await self.broker()  # here, so that batches leave in their order
                group.create_task(self._send(broker, self.number, values, self.sequence))
                self.number += 1
                self.sequence += len(values)
                await asyncio.sleep(self.dice.waiting_s(pause_s))

    def in_flight(self) -> int:
        """How many batches wait for their answer."""
        return len(self._waiting)

    async def _send(
        self, broker: LogBroker, number: int, values: tuple[str, ...], sequence: int
    ) -> None:
        invoked_s = self.now_s()
        idempotent = self.producer >= 0
        batch = make_batch(
            values,
            now_ms=self.cluster.clock.now_ms(),
            producer=self.producer,
            sequence=sequence if idempotent else -1,
        )
        ending, offset = OperationOutcome.UNKNOWN, -1
        connection = f"{broker.name}/{self.connections}"
        try:
            if idempotent:
                ending, offset = await self._insist(batch)
            else:
                ending, offset, _ = await self._once(broker, batch)
        finally:
            # A plain producer's order holds on one connection only.
            sent = Sent(
                client=self.name if idempotent else f"{self.name}@{connection}",
                stream=self.stream,
                number=number,
                values=values,
                invoked_s=invoked_s,
                returned_s=self.now_s(),
                ending=ending,
                base_offset=offset,
            )
            self.cluster.history.sent.append(sent)
            self.cluster.loop.note(self.name, "sent", number, ending.value, offset)
        if ending is not OperationOutcome.OK:
            self.leave()
        self._waiting.discard(number)
        self._answered.set()

    async def _insist(self, batch: AcceptedBatch) -> tuple[OperationOutcome, int]:
        """Retry on whatever broker until the batch is in, or its stream is gone for good."""
        tried: set[str] = set()
        while True:
            broker = await self.broker()
            ending, offset, verdict = await self._once(broker, batch)
            if ending is OperationOutcome.OK:
                if verdict is Verdict.DUPLICATE and tried - {broker.name}:
                    self.cluster.reached.add("a retry on another broker was a duplicate")
                return ending, offset
            tried.add(broker.name)
            if (
                verdict is Verdict.UNKNOWN_STREAM
                and self.stream not in self.cluster.auditor.heads()
            ):
                return OperationOutcome.UNKNOWN, -1
            if self.dice.chance(0.5):
                self.leave()
            await asyncio.sleep(self.dice.waiting_s(0.1))

    async def _once(
        self, broker: LogBroker, batch: AcceptedBatch
    ) -> tuple[OperationOutcome, int, Verdict | None]:
        request = broker.spawn(broker.produce(self.stream, batch))
        await asyncio.wait([request], timeout=CLIENT_TIMEOUT_S)
        if not request.done():
            self.cluster.reached.add("a client gave up waiting")
            return OperationOutcome.UNKNOWN, -1, None
        error = request.exception()
        if isinstance(error, Unavailable):
            return OperationOutcome.FAILED, -1, None
        if isinstance(error, OutcomeUnknown):
            self.cluster.reached.add("a client heard that the outcome is unknown")
            return OperationOutcome.UNKNOWN, -1, None
        if error is not None:
            raise error
        return _judged(request.result())


def _judged(appended: Appended) -> tuple[OperationOutcome, int, Verdict]:
    verdict = Verdict(appended.verdicts[0])
    if verdict in (Verdict.ACCEPTED, Verdict.DUPLICATE):
        return OperationOutcome.OK, appended.offsets[0], verdict
    return OperationOutcome.FAILED, -1, verdict


class Consumer(Client):
    """Reads a stream from its start on, from whatever broker, and checks what it gets."""

    def __init__(self, cluster: LogCluster, name: str, stream: int) -> None:
        super().__init__(cluster, name)
        self.stream = stream
        self.offset = 0
        self.violations: list[str] = []

    async def run(self, until_s: float) -> None:
        """Read until then."""
        while self.now_s() < until_s:
            broker = await self.broker()
            if self.dice.chance(0.2):
                await self._marks(broker)
            elif not await self._fetch(broker):
                await asyncio.sleep(self.dice.waiting_s(0.1))
            if self.dice.chance(0.1):
                self.leave()

    async def _ask(self, broker: LogBroker, asking: "asyncio.Task[object]") -> object | None:
        await asyncio.wait([asking], timeout=CLIENT_TIMEOUT_S)
        if not asking.done():
            self.leave()
            return None
        error = asking.exception()
        if isinstance(error, Failure):
            self.leave()
            await asyncio.sleep(0.05)
            return None
        if error is not None:
            raise error
        return asking.result()

    async def _marks(self, broker: LogBroker) -> None:
        invoked_s, connection = self.now_s(), self._connection(broker)
        got = await self._ask(broker, broker.spawn(broker.marks(self.stream)))
        if isinstance(got, tuple):
            log_start, head = got
            self._saw(connection, (), log_start, head, invoked_s, proved=True)

    async def _fetch(self, broker: LogBroker) -> bool:
        """Whether there was something new."""
        invoked_s, connection = self.now_s(), self._connection(broker)
        got = await self._ask(broker, broker.spawn(broker.fetch(self.stream, self.offset)))
        if not isinstance(got, tuple):
            return False
        fetched, proved = got
        assert isinstance(fetched, Fetched)
        if fetched.status is ReadStatus.OUT_OF_RANGE:
            return self._out_of_range(fetched)
        if fetched.status is not ReadStatus.OK:
            if fetched.status is ReadStatus.DAMAGED:
                self.violations.append(f"E2 {self.name}: {self.stream}/{self.offset} is damaged")
            return False
        records = records_of(fetched)
        self._saw(connection, records, fetched.log_start, fetched.head, invoked_s, proved=proved)
        fresh = [record for record in records if record[0] >= self.offset]
        if [offset for offset, _ in fresh] != list(range(self.offset, self.offset + len(fresh))):
            self.violations.append(f"L4 {self.name}: {self.offset} is followed by {fresh}")
        if records and not fresh:
            self.violations.append(f"L4 {self.name}: asked for {self.offset}, got {records}")
        self.offset += len(fresh)
        return bool(fresh)

    def _out_of_range(self, fetched: Fetched) -> bool:
        if self.offset > fetched.head:
            self.violations.append(f"L8 {self.name}: {self.offset} is beyond {fetched.head}")
            return False
        self.cluster.reached.add("a consumer was overtaken by a trim")
        self.offset = fetched.log_start
        return True

    def _connection(self, broker: LogBroker) -> str:
        return f"{broker.name}/{self.connections}"

    def _saw(
        self,
        connection: str,
        records: Sequence[tuple[int, str]],
        log_start: int,
        head: int,
        invoked_s: float,
        *,
        proved: bool,
    ) -> None:
        if proved and not records:
            self.cluster.reached.add("an empty answer was proved")
        seen = HeardRead(
            client=self.name,
            connection=connection,
            stream=self.stream,
            offset=self.offset,
            records=tuple(records),
            log_start=log_start,
            head=head,
            invoked_s=invoked_s,
            returned_s=self.now_s(),
            proved=proved,
        )
        self.cluster.history.seen.append(seen)
        self.cluster.loop.note(self.name, "saw", self.offset, len(records), log_start, head)
