"""The load generator: a process of its own, told by lines of JSON what to do. The same for us and for every peer."""
