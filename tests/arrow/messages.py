"""Messages of every kind of payload."""

from __future__ import annotations

from ackwise.core.messages import NewMessage

PNG = NewMessage(b"\x89PNG", content_type="image/png", headers={"k": "v", "": "é"})


MIXED = [
    NewMessage(b'{"a": 1.0,  "b":[ ]}'),
    NewMessage('"é"'.encode(), transaction_id="mine"),
    NewMessage(b'"\xff"'),
    NewMessage(b'{"cut": ', headers={"why": "broken"}),
    NewMessage(b""),
    PNG,
    NewMessage(b"[1]", content_type="text/plain"),
    NewMessage(b"\xff\xfe", content_type="application/octet-stream", transaction_id="bytes"),
    NewMessage(b"7", headers={"only": "headers"}),
]
