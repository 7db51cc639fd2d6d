"""Fed from NATS JetStream. Settlements are passed straight through; what they mean there, JetStream decides."""

from ackwise.subscriber.feeds.jetstream.link import NATSLink

__all__ = ["NATSLink"]
