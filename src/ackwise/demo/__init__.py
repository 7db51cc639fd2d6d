"""A broker, a producer, four consumers and some poison, in a temporary folder."""
