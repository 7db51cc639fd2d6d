"""Where messages come from: our own broker, embedded or behind a server, and NATS."""
