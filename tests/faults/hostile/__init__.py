"""A hostile campaign: attackers, failing disks, stopped and killed servers, and an account of every message."""
