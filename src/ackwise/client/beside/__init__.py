"""What working side by side takes, for tasks of an event loop and for threads: a lock, a signal, a worker."""
