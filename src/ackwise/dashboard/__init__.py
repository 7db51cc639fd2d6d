"""Pages and static files that show queues in a browser. The package is reserved and empty."""
