"""The subscriber app."""
