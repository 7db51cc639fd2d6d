"""The nouns of Ackwise and every decision about them: no I/O, no clock, no randomness, no logging."""
