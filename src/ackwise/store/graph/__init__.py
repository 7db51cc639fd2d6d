"""The graph in a store: entities beside the queues, patterns as SQL, watches that are told of each commit."""
