"""Talks driven on asyncio. This is the source; `ackwise.dialects.mew.sync` is generated from it."""
