# Generated from ../aio/__init__.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Sessions for threads, generated from `ackwise.mew.aio`."""
