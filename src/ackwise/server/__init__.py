"""Server: sockets, limits and routes of all protocols over one broker."""
