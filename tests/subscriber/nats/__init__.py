"""The same handlers on a real NATS server."""
