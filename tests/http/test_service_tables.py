"""The pages about tables: rows, one table, and what is wrong."""

import asyncio
import http.client
import json
import socket
from contextlib import closing

import pytest
from starlette.applications import Starlette

from lakelog.http.service import serve, table_routes
from lakelog.model.failures import NotFound, Unavailable


async def described(topic: str) -> dict[str, object]:
    if topic == "absent":
        raise NotFound("there is no topic 'absent'")
    if topic == "slow":
        raise Unavailable("no answer")
    return {"topic": topic}


async def listed() -> list[dict[str, object]]:
    return [{"topic": "t"}]


async def failing() -> list[dict[str, object]]:
    raise Unavailable("no answer")


@pytest.mark.parametrize(
    ("path", "status", "expected"),
    [
        ("/admin/tables", 200, [{"topic": "t"}]),
        ("/admin/tables/a.b-c", 200, {"topic": "a.b-c"}),
        ("/admin/tables/a%20b", 200, {"topic": "a b"}),
        ("/admin/tables/absent", 404, {"error": "there is no topic 'absent'"}),
        ("/admin/tables/slow", 503, {"error": "no answer"}),
        ("/failing/admin/tables", 503, {"error": "no answer"}),
    ],
)
def test_tables_are_shown_or_it_is_said_what_is_wrong(
    path: str, status: int, expected: object
) -> None:
    routes = table_routes(failing if path.startswith("/failing") else listed, described)

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            port = int(listening.getsockname()[1])
            serving = asyncio.create_task(serve(Starlette(routes=routes), listening))

            def ask() -> tuple[int, object]:
                with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as asked:
                    asked.request("GET", path.removeprefix("/failing"))
                    answer = asked.getresponse()
                    return answer.status, json.loads(answer.read())

            loop = asyncio.get_running_loop()
            assert await loop.run_in_executor(None, ask) == (status, expected)
            serving.cancel()
            await asyncio.wait([serving])

    asyncio.run(scenario())
