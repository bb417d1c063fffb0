"""The compiled kernels (native/*.c). Ask `lakelog.records.kernels` for them: they may be missing."""

from typing_extensions import Buffer

from lakelog.records.kernels import Limits, ScanOutcome

def crc32c(data: Buffer, crc: int, /) -> int: ...
def scan(
    data: Buffer, position: int, index: int, count: int, limits: Limits, /
) -> ScanOutcome: ...
