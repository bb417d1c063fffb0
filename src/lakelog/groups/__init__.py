"""Consumer groups as pure machines: states, events, offsets, assignments. No I/O.

Which value passes between whom:

    GroupEvent -> GroupTable.apply -> routing.judge -> classic.step | consumer.step
                                                    -> (Group, GroupOutcome)

- `state` holds the values: `ClassicGroup` and `ConsumerGroup` with their members, committed
  offsets, timers. `events` holds what happens to them (`Join`, `Sync`, `ConsumerHeartbeat`,
  `CommitOffsets` and others), the outcomes that clients hear, and the answers of requests that
  wait. `parts` cuts an event that is larger than a record of the log.
- `table` is all groups of one domain: it applies events, keeps offsets, and estimates sizes.
- `routing` decides which machine an event goes to, and what absent groups answer.
- The classic protocol: `classic` decides (join, leave, expiry, answers), `classic_rebalance` goes
  from one generation to the next, `classic_members` keeps members, leader and protocols consistent.
- The consumer protocol (KIP-848): `consumer` decides, `consumer_heartbeat` takes a heartbeat in,
  `consumer_reconcile` moves a member from what it has to its target, `consumer_target` resolves
  subscription patterns and computes the target assignment with the `assignors`.

Everything here runs inside `apply` of the domain log, on every broker alike, except for targets and
patterns: the group's owner works them out (`coordinator.owner`), and they are data in the log (K7).
"""
