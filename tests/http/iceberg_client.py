"""Asks the catalog's application as a server would, without a socket."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from tests.catalog.kit import memory
from tests.http.iceberg_kit import NAMESPACE, Stores, small

from lakelog.http.iceberg_messages import VendOptions
from lakelog.http.iceberg_routes import IcebergPages, iceberg_routes

TABLE = f"/v1/namespaces/{NAMESPACE}/tables/orders"
COMMENT = {
    "requirements": [],
    "updates": [{"action": "set-properties", "updates": {"comment": "x"}}],
}


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str, str]:
        """The ErrorModel, whose code must be that of the answer."""
        error = self.json["error"]
        assert sorted(error) == ["code", "message", "type"]
        assert error["code"] == self.status
        assert error["message"]
        assert "Traceback" not in error["message"]
        return error["code"], error["type"], error["message"]


class Client:
    """Asks an application as a server would."""

    def __init__(self, pages: IcebergPages) -> None:
        self._app = Starlette(routes=iceberg_routes(pages))

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: str = "",
        body: Any = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        raw = ("/iceberg" + path).encode()
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(raw.decode("ascii")),
            "raw_path": raw,
            "query_string": query.encode(),
            "headers": [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()],
            "http_version": "1.1",
            "scheme": "http",
            "server": ("x", 80),
            "client": None,
            "root_path": "",
        }
        parts = [sent[at : at + 65_536] for at in range(0, len(sent), 65_536)] or [b""]
        messages: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            part = parts.pop(0) if parts else b""
            return {"type": "http.request", "body": part, "more_body": bool(parts)}

        async def send(message: Any) -> None:
            messages.append(message)

        await self._app(scope, receive, send)
        headers_out = {k.decode(): v.decode() for k, v in messages[0]["headers"]}
        content = b"".join(message.get("body", b"") for message in messages[1:])
        return Answer(messages[0]["status"], headers_out, content)


def over(
    work: Callable[[Client, Stores], Awaitable[None]],
    *,
    setup: Callable[[Stores], Awaitable[None]] = small,
    vend: VendOptions | None = None,
) -> None:
    """Run a test over stores in memory."""

    async def run() -> None:
        there = memory()
        stores = Stores(there.meta, there.objects)
        await setup(stores)
        pages = stores.pages(vend)
        await work(Client(pages), stores)
        await pages.close()

    asyncio.run(run())
