# Generated from ../aio/__init__.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Sessions driven in threads, generated from `ackwise.protocols.mew.aio`."""
