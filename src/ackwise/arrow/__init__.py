"""Stored messages as Arrow columns, built from segments without decoding single messages. Used by server and Spark."""
