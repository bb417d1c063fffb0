"""An object store in a local directory that survives power loss."""
