"""The command line: the composition root, the commands, and what they print."""
