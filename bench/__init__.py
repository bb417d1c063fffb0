"""Benchmarks with a peer in the same run."""
