"""Streams as packed columns: heads, offset index, producer windows. Pure.

A domain touches thousands of streams in one record, so nothing here makes an object per stream or
per entry: facts are columns of numpy arrays, rows are found by number.
"""
