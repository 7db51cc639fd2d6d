"""Protocols: translate requests of each API into commands for the broker, and its answers back.

A protocol makes no decision about a message.
"""
