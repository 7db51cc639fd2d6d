"""Measuring from the command line: `ackwise bench`."""
