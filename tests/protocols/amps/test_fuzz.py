"""Mutated frames, a bounded number of rounds: the server answers or hangs up, and serves the other clients."""

from __future__ import annotations

import os
import random

import pytest

import ackwise
from tests.protocols.amps.conftest import Meet
from tests.protocols.amps.peer import Peer, frame
from tests.server.running import Running

ROUNDS = 1000
LOGON = b'{"c":"logon","cid":"0","a":"processed","client_name":"probe","version":"0.8.18","mt":"json"}'
SAID = (
    LOGON,
    b'{"c":"subscribe","cid":"1","t":"queue://orders","opts":"max_backlog=20","a":"processed","sub_id":"1"}',
    b'{"c":"sow_and_subscribe","cid":"1","t":"news","a":"processed,completed","sub_id":"2"}',
    b'{"c":"p","cid":"1","t":"queue://orders","a":"persisted","s":3,"e":5}{"i":0}',
    b'{"c":"publish","topic":"news"}told',
    b'{"c":"ack","t":"queue://orders","bm":"4384308064|1099511627776|,P|4|","sub_id":"1"}',
    b'{"c":"sow_delete","cid":"6","t":"queue://t","bookmark":"7|7|","opts":"expire"}',
    b'{"c":"flush","cid":"3","a":"processed,completed"}',
    b'{"c":"heartbeat","cid":"1","opts":"start,1","a":"processed"}',
    b'{"c":"unsubscribe","cid":"9","sub_id":"all","a":"processed"}',
    b'{"c":"disconnect"}',
)
ODD = (
    b"{",
    b"}",
    b'"',
    b"\\",
    b",",
    b":",
    b"\0",
    b"\xff",
    b"null",
    b"1e99",
    b"[[[[",
    b"queue://",
    b"|",
    b"-1",
    b"\\ud800",
)


def mutated(dice: random.Random, raw: bytes) -> bytes:
    data = bytearray(raw)
    for _ in range(dice.randrange(4)):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(4):
            case 0:
                data[at : at + dice.randrange(8)] = b""
            case 1:
                data[at:at] = dice.choice(ODD)
            case 2:
                data[at : at + 1] = dice.randbytes(1)
            case _:
                data[at:at] = data[max(0, at - 20) : at] * dice.randrange(3)
    whole = frame(bytes(data))
    if dice.random() < 0.1:
        whole = dice.randbytes(4) + whole[4:]
    if dice.random() < 0.1:
        whole = whole[: dice.randrange(len(whole))]
    return whole


def test_mutated_frames_disturb_no_other_client(meet: Meet, server: Running, http: ackwise.Connection) -> None:
    seed = int(os.environ.get("ACKWISE_FUZZ_SEED", "1"))
    dice = random.Random(seed)
    witness = meet(name="witness")
    witness.subscribe("queue://witness", 5)
    for number in range(ROUNDS):
        with Peer(server.amps, logon=False) as peer:
            if dice.random() < 0.9:
                peer.send(frame(LOGON))
            said = [mutated(dice, dice.choice(SAID)) for _ in range(dice.randrange(1, 12))]
            try:
                peer.send(b"".join(said))
                if dice.random() < 0.5:
                    peer.socket.settimeout(0.02)
                    while peer.read_or_end() is not None:
                        pass
            except (TimeoutError, ConnectionError):
                pass
        if number % 50 == 0:
            witness.say({"c": "p", "t": "queue://witness"}, str(number).encode())
            delivery = witness.read()
            assert delivery.body == str(number).encode(), f"round {number}, ACKWISE_FUZZ_SEED={seed}"
            assert witness.ack("queue://witness", delivery["bm"]) == 1
    assert sum(group.lag for group in http.groups("witness")) == 0


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
def test_frames_in_any_pieces(size: int, meet: Meet) -> None:
    peer = meet()
    data = b"".join(frame(b'{"c":"p","cid":%d,"t":"queue://q","a":"persisted"}body' % number) for number in range(5))
    for at in range(0, len(data), size):
        peer.send(data[at : at + size])
    assert [peer.read()["cid"] for _ in range(5)] == list(range(5))
