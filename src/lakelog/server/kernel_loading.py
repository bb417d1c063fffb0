"""The compiled kernels are loaded once there is traffic, without holding up the loop.

The very first compilation takes some seconds of pure Python, which would slow down every request;
it is done by a process of its own, which leaves its result in the cache on disk.
"""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from lakelog.records import kernels
from lakelog.telemetry import event

_log = logging.getLogger(__name__)


async def load_kernels(traffic_began: asyncio.Event) -> None:
    """Switch to the compiled kernels when it pays: the event says so."""
    await traffic_began.wait()
    if not kernels.are_cached():
        compiler = await asyncio.create_subprocess_exec(*kernels.COMPILE_COMMAND)
        await compiler.wait()
    with ThreadPoolExecutor(1, thread_name_prefix="lakelog-kernels") as pool:
        try:
            await asyncio.get_running_loop().run_in_executor(pool, kernels.load)
        except ImportError as reason:  # the pure twins give the same answers, more slowly
            event(_log, "kernels_missing", logging.WARNING, reason=str(reason))
