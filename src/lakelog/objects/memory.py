"""An object store in memory: for tests and simulations."""
