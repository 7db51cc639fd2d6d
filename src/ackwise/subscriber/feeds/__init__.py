"""Feeds: messages from Ackwise, embedded or behind a server, and from NATS JetStream."""
