"""Formats that clients and servers share."""
