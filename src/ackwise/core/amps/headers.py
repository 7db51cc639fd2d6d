"""The header of a frame: a flat JSON object. Its keys are spelled as the clients send them; some have two spellings."""

from __future__ import annotations

import msgspec

from ackwise.core.errors import BadInput

Scalar = str | int | float | bool | None
ANSWERS = ("received", "parsed", "processed", "persisted", "completed", "stats")
"""What a command can ask to be told, in the order in which it happens."""
SUCCESS, FAILURE = "success", "failure"


class Header(msgspec.Struct, omit_defaults=True):
    """What a frame says. Numbers may come quoted or bare, so every field takes both."""

    c: Scalar = None
    cid: Scalar = None
    t: Scalar = None
    topic: Scalar = None
    a: Scalar = None
    sids: Scalar = None
    sub_id: Scalar = None
    bm: Scalar = None
    bookmark: Scalar = None
    lp: Scalar = None
    s: Scalar = None
    e: Scalar = None
    o: Scalar = None
    opts: Scalar = None
    status: Scalar = None
    reason: Scalar = None
    records_deleted: Scalar = None
    client_name: Scalar = None
    version: Scalar = None
    mt: Scalar = None
    user_id: Scalar = None
    pw: Scalar = None

    @property
    def command(self) -> str:
        return "p" if self.c == "publish" else text(self.c)

    @property
    def subject(self) -> str:
        """The topic, in either spelling."""
        return text(self.t) or text(self.topic)

    @property
    def options(self) -> dict[str, str]:
        """`max_backlog=20,replace` as a mapping; an option without a value has an empty one."""
        pairs = (one.partition("=") for one in (text(self.opts) or text(self.o)).split(","))
        return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}

    @property
    def bookmarks(self) -> list[str]:
        return [one.strip() for one in (text(self.bm) or text(self.bookmark)).split(",") if one.strip()]

    @property
    def subscription(self) -> str:
        return text(self.sub_id) or text(self.sids)

    @property
    def asked(self) -> list[str]:
        """The answers it asks for; what nobody knows is not answered."""
        wanted = {one.strip() for one in text(self.a).split(",")}
        return [one for one in ANSWERS if one in wanted]


_decoder = msgspec.json.Decoder(Header)
_encoder = msgspec.json.Encoder()


def decode(raw: bytes) -> Header:
    try:
        return _decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise BadInput(f"the header is not understood: {problem}") from None


def encode(header: Header) -> bytes:
    """Compact, in raw UTF-8, without nulls."""
    return _encoder.encode(header)


def quoted(value: str) -> bytes:
    """A text as it stands in a header."""
    return _encoder.encode(value)


def text(value: Scalar) -> str:
    """A field as text, "" when it is absent."""
    if value is None or isinstance(value, bool):
        return ""
    return value if isinstance(value, str) else str(value)
