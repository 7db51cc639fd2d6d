"""The AMPS wire protocol as both ends spell it: frames, headers, bookmarks, instants."""
