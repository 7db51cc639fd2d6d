"""Other systems' words for the one engine. A dialect translates; it decides nothing."""
