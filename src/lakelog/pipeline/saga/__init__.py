"""TODO: cast list."""
