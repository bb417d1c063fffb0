"""The offset index of the log, as it is asked for from outside of a broker.

Who does what: a broker answers (`lakelog.server`, by way of `lakelog.http`), the pipeline asks.
What passes between them is in `ports`:

- `IndexedTopic`: a topic, its streams and the settings that a compaction needs;
- `StreamColumns` within a `StreamIndex`: all entries of a stream as columns, to plan with;
- `StreamRange` -> `StreamView` of `StreamEntry`: the entries of some offsets, to act on;
- `Swap` -> `Swapped` (of `lakelog.domain`): files take the place of entries.

`LogIndex` is the port; its implementers raise `Unavailable` and `OutcomeUnknown`.
"""
