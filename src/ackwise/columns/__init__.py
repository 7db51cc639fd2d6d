"""Stored messages as Arrow columns, made without touching a message: for the server's Arrow answers and for Spark."""
