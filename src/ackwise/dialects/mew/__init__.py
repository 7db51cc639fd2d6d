"""MEW: WATCH, ACK and NACK over a graph. The language becomes statements of `core.graph`; the store runs them."""
