"""The command line: the composition root, the commands, and what they print.

Who does what:

- `main` finds the command and imports it only then; a failure becomes one message and an exit
  code.
- A module for each command: `serve` (with `up`), `demo`, `topics`, `records`, `groups`,
  `discover`, `sql`, `tables`, `pipeline`, `admin` (with `config` and `api-versions`). `command`
  has what they share: options, the cluster of `lakelog.kafka_client` that Kafka commands ask,
  tables and JSON.
- `compose` is the composition root: it opens the stores and runs a broker; `http_port` puts
  together what is behind its HTTP port, and is imported when the Kafka port serves.
- The group commands: `group_view` reads groups, `group_offsets` where they stand in a log,
  `group_seek` plans a move (`Move`) and commits it; `groups` prints.
- `record_clients` sends and reads records at their leaders; `offsets` parses from where to where
  (`ReadBounds`).
- `demo_clients` are the demo's Kafka clients, `pipeline_progress` shows a pipeline's rounds.
"""
