"""The object store: immutable files by key, behind one port.

`port.ObjectStore` is the port, with the rules that every backend keeps and `testing` checks.
`local.LocalObjectStore` is a directory (`local_files` does the system calls), `remote` is S3, GCS
and Azure, `memory` is for tests. `probe` asks a store at start whether it keeps its promises, and
`local_clock` says whether this machine's clock may judge what is old where a store has no clock.
"""
