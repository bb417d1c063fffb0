"""Consumer groups as pure machines: states, events, offsets, assignments. No I/O."""
