"""A pipeline whose tasks, workers and driver are killed, and what must have become of every single record."""
