"""Engine: runs the commands of a turn in an open transaction, by the rules of `core`."""
