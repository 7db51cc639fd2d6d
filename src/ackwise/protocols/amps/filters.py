"""Content filters of AMPS subscriptions. The module is reserved and empty."""
