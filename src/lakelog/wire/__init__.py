"""The Kafka wire protocol: message classes, the codec that is compiled from them, framing. Pure."""
