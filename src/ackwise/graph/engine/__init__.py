"""The graph in a store: entities and their indexes, patterns as SQL, watches, deliveries."""
