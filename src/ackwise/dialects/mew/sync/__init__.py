# Generated from ../aio/__init__.py by tools/async_to_sync.py: do not edit, change the source and run it again.
"""Talks driven in threads, generated from `ackwise.dialects.mew.aio`."""
