"""Sessions driven on asyncio. This is the source; `ackwise.protocols.mew.sync` is generated from it."""
