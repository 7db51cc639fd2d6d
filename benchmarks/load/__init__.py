"""Load generator: a process that reads jobs as lines of JSON. It loads Ackwise and every peer in the same way."""
