"""MEW protocol: sessions that turn text into graph commands, `POST /mew` and the WebSocket of events."""
