"""Record batches of version 2: header, CRC-32C, scan, codecs, acceptance, building. Pure.

Work is per batch: nothing here makes a Python object per record unless a caller asks for rows. The
loops over records are compiled (`kernels`), and where they are not, twins give the same verdicts.
"""
