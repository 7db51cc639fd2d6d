"""Where messages live: the port, what a turn does to the rows, and the two databases."""
