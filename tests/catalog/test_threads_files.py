"""Files of a table as objects: repeated when a reply is lost, and never outside the prefix."""

import pytest
from tests.catalog.kit import Fault, FaultyObjects, Weather, memory, nth, run

from lakelog.catalog.threads import Calls, LibraryThreads, ObjectFiles
from lakelog.clock import SystemClock
from lakelog.model.failures import NotFound, Refused, Unavailable


def files_do(weather: Weather, work: "object") -> None:
    async def body() -> None:
        objects = FaultyObjects(memory().objects, weather)
        bridge = LibraryThreads(SystemClock(), threads=1)

        def blocking(calls: Calls) -> None:
            assert callable(work)
            work(ObjectFiles(calls, objects, put_attempts=3))

        try:
            await bridge.run(blocking, timeout_s=10)
        finally:
            await bridge.close()

    run(body)


def test_what_was_put_is_read_and_deleted() -> None:
    def work(files: ObjectFiles) -> None:
        files.put("memory:///a/b", b"content")
        assert bytes(files.get("memory:///a/b")) == b"content"
        assert files.exists("memory:///a/b")
        files.delete("memory:///a/b")
        files.delete("memory:///a/b")
        assert not files.exists("memory:///a/b")
        with pytest.raises(NotFound):
            files.get("memory:///a/b")

    files_do(Weather(), work)


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST])
def test_a_put_whose_reply_was_lost_is_repeated(fault: Fault) -> None:
    weather = Weather(nth("manifest", 1, fault))

    def work(files: ObjectFiles) -> None:
        files.put("memory:///a/b", b"content")
        assert bytes(files.get("memory:///a/b")) == b"content"

    files_do(weather, work)
    assert weather.asked[:2] == [("manifest", "a/b")] * 2


def test_a_put_that_stays_unknown_changed_nothing_that_counts() -> None:
    weather = Weather(lambda kind, key: Fault.LOST_REPLY)

    def work(files: ObjectFiles) -> None:
        with pytest.raises(Unavailable, match="nothing names it"):
            files.put("memory:///a/b", b"content")

    files_do(weather, work)
    assert len(weather.asked) == 3


def test_no_file_outside_the_prefix_is_touched() -> None:
    weather = Weather()

    def work(files: ObjectFiles) -> None:
        for place in ("file:///etc/passwd", "memory:///../x", "s3://b/x", "memory://host/x"):
            for touch in (files.check, files.get, files.delete, files.exists):
                with pytest.raises(Refused):
                    touch(place)
            with pytest.raises(Refused):
                files.put(place, b"")

    files_do(weather, work)
    assert not weather.asked
