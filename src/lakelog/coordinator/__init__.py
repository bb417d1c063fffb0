"""The group coordinator: the shell around the machines of `lakelog.groups`. Any broker is one (K9).

Who does what:

- `GroupCoordinator` is what handlers call. It finds the `GroupDomain` of a group and passes each
  request on: `ClassicRequests` (JoinGroup, SyncGroup, Heartbeat, LeaveGroup), `ConsumerRequests`
  (ConsumerGroupHeartbeat), `OffsetCommits`. `requests` has their values and the checks that need no
  group. `Budget` refuses an event that would hold too much, before it is queued.
- `GroupDomain` is the groups of one domain as this broker sees them. Its `Outbox` queues a
  `GroupEvent` in the domain log and returns an `EventResult`: the outcome of `apply`, or a code.
  Its listeners get a `GroupDiff` for each group that a record changed.
- `WaitingRequests` holds joins and syncs that are answered from the state of their group (K1).
- `MemberExpiry` notices who falls silent and which timers ran out, and appends that; `timers` has
  the clocks. `Owner` computes target assignments and resolves patterns (K7). `OffsetRetention`
  forgets offsets, `GroupMetrics` counts. `options` has what they ask of the rest of a broker.

A request: handler -> `JoinRequest` -> `Join` event -> log -> `apply` -> `Joined` -> `JoinAnswer`.

The order in which an applied record is heard of (`domain.replica.Replica._apply`): first the state
has it, then `Writer.applied` settles the futures of our own events, then the replica's listeners
run, and through them `WaitingRequests.see`. Callbacks of a settled future run on a later turn of
the loop, so `see` of a record comes before `take` of a request that the record took in. `see` skips
a request that is not taken in yet; therefore `take` looks at the group itself, as it is by then.
What `WaitingRequests` depends on is that the state comes first, and that both look at the state: so
a change between the two is never missed.
"""
