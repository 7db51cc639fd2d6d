"""The server: every HTTP face over one broker."""
