"""A Kafka client for everything: settings, connections, a cluster's metadata, and what is asked.

Who does what, from the bottom up:

- `settings.ClientSettings` is what a user configures, by librdkafka's names (`setting_keys`); a
  properties file of Kafka's Java clients is translated to them.
- `dialing.Dialer` opens a TCP connection, with `tls` and `sasl` as the settings say, asks for
  ApiVersions and returns a `connection.BrokerConnection`: one socket, many requests in flight,
  answers in order. A connection is never repaired.
- `dialing.BrokerLink` holds the connection to one broker and opens the next one, with backoff,
  when it is lost. `dialing.dial` is one connection to one broker, where no cluster is needed.
- `cluster.KafkaCluster` is what callers hold: it bootstraps, caches Metadata (`metadata`, values
  only), finds leaders, the controller and group coordinators, and retries until a deadline
  (`lakelog.retry`) what a retry can heal.
- `admin` asks a cluster: ListOffsets at the leaders, OffsetFetch, OffsetCommit and whatever else at
  a group's coordinator.
- `loop_thread.LoopThread` runs all of it on one event loop for users who do not write `await`.

The values between them are requests and responses of `lakelog.wire.messages`; whatever fails is a
`failures.ClientFailure`, named for what the caller does next. The ordered consumer
(`lakelog.client`), group discovery (`lakelog.discovery`) and the command line (`lakelog.cli`) are
built on it; it knows none of them.
"""
