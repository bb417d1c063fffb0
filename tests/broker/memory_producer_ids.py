"""The counter of producer ids as handlers see it, in memory."""

from lakelog.model.failures import Failure


class ProducerNumbers:
    """The cluster's counter of producer ids, as another broker may have moved it meanwhile."""

    def __init__(self) -> None:
        self.counter = 4_000
        self.known_end = 4_000
        self.asked = 0
        self.failure: Failure | None = None

    @property
    def producer_ids(self) -> "ProducerNumbers":
        return self

    async def next(self) -> int:
        if self.failure is not None:
            raise self.failure
        self.counter += 1
        self.known_end = self.counter
        return self.counter - 1

    async def was_given_out(self, producer: int) -> bool:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        self.known_end = self.counter
        return producer < self.counter
