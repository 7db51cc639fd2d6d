"""Host names and addresses: which are IP literals, which are this machine."""

from __future__ import annotations

import ipaddress


def is_ip_literal(host: str) -> bool:
    """Whether this is an address and not a name; IPv6 may be in brackets."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine can be meant."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
