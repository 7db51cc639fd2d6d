"""Identities, rights, keys and the audit of their use. The package is reserved and empty."""
