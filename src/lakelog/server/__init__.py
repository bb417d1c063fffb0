"""A broker as a process: the Kafka port, and the node that puts everything behind it together.

- `node.Node` starts and stops a whole broker, given a `NodeEnvironment` (stores, clock,
  entropy) and `NodeOptions`; `adapters` are its parts as other parts of it see them.
- `listener.Listener` accepts connections, watches over them and lets them go in good order;
  `options` says where, and with which limits.
- `connection.ClientConnection` is one of them: it turns bytes into frames, stops reading at a
  limit, and sends what is ready. `port.PortState` is what all of them share: bytes held, counters.
- `requests.Requests` takes the frames of one connection in their order, gives runs of Produce
  requests to `broker.produce_rows` and all others to their handlers (`lakelog.broker`);
  `answers.Answers` lets the answers leave in that order.
"""
