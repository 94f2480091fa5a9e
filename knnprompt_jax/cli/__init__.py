"""The command line: options of the commands, flags, one-line errors."""
