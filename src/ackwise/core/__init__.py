"""Values of Ackwise, and the decisions about messages. No I/O, clock, randomness or logging."""
