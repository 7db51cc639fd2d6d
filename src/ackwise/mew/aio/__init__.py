"""Sessions for asyncio. This is the source; `ackwise.mew.sync` is generated from it."""
