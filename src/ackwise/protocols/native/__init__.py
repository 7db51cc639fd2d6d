"""Native HTTP API (`/v1/…`), which Ackwise's own client and the Spark connector use."""

from ackwise.protocols.native.routes import native_routes

__all__ = ["native_routes"]
