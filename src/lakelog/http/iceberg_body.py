"""A request's body, with a limit in bytes and one in seconds."""

import asyncio
from typing import Final

from starlette.requests import Request

from lakelog.http.iceberg_errors import bad_request

BODY_BYTES_MAX: Final = 1 << 20
"""A commit from outside is a few kilobytes: columns, properties, tags."""

DRAINED_BYTES_MAX: Final = 32 << 20
"""So much of a body that is too large is read all the same: who still sends hears no answer."""

BODY_S: Final = 20.0


async def read_body(request: Request) -> bytes:
    """The whole body; one that is too large or too slow is a 400."""
    kept: list[bytes] = []
    size_bytes = 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                size_bytes += len(part)
                if size_bytes <= BODY_BYTES_MAX:
                    kept.append(part)
                elif size_bytes > DRAINED_BYTES_MAX:
                    break
    except TimeoutError as error:
        raise bad_request(f"the body did not arrive within {BODY_S:.0f} seconds") from error
    if size_bytes > BODY_BYTES_MAX:
        raise bad_request(f"the body is larger than {BODY_BYTES_MAX} bytes")
    return b"".join(kept)
