"""The fluent client."""
