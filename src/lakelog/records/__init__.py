"""Record batches of version 2: header, CRC-32C, scan, codecs, acceptance, building. Pure.

Work is per batch: nothing here makes a Python object per record unless a caller asks for rows. The
compiled kernels (numba) are imported only by `kernels.load`; until then pure twins give the same
verdicts.
"""
