"""Addresses under which peers count."""

from __future__ import annotations

import pytest

from ackwise.protocols.peers import Peers, address_of


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("not:an:address", "not:an:address"),
    ],
)
def test_peer_counts_by_address_or_64(address: str, counted: str) -> None:
    assert address_of((address, 1234)) == counted


def test_peer_without_an_address_is_local() -> None:
    assert address_of(None) == "local"


def test_addresses_of_one_64_share_their_connections() -> None:
    peers = Peers(max_connections=4, share=0.5)
    entered = [peers.enter(address_of((f"2001:db8::{number:x}", 1))) for number in range(3)]
    assert entered == [True, True, False]
    assert peers.enter(address_of(("2001:db8:0:1::1", 1)))
    peers.leave(address_of(("2001:db8::1", 1)))
    peers.leave(address_of(("2001:db8::2", 1)))
    assert peers.enter(address_of(("2001:db8::ffff", 1)))
