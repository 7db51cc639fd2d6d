"""Feed from NATS JetStream. Settlements are passed to JetStream, which decides about retries."""

from ackwise.core.extras import needed

with needed("nats", "a nats:// URL"):
    from ackwise.subscriber.feeds.jetstream.connection import NATSLink

__all__ = ["NATSLink"]
