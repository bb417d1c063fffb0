"""The Kafka port: sockets, sessions, and the node that stands behind them."""
