"""The native API: what our own client and Spark speak."""

from ackwise.server.native.routes import native_routes

__all__ = ["native_routes"]
