"""Ackwise: a durable message queue in which every delivery ends in exactly one settlement."""
