"""Error texts with their kinds."""

from __future__ import annotations

from ackwise.core.error_kinds import LONGEST_KIND

TABLE: dict[str | None, str] = {
    "order 17 not found": "order <n> not found",
    "order 99 not found": "order <n> not found",
    "amount 1,234.50 EUR, not -5 or 3.5e-7": "amount <n> EUR, not <n> or <n>",
    "ORD17 and C9": "ORD<n> and C<n>",
    "range 5-10 (3)-4": "range <n>-<n> (<n>)-<n>",
    "10.0.0.1:8080 refused": "<n>:<n> refused",
    "message 019a3c51-6a00-7b3e-8f10-52c7d1a0e001 is gone": "message <uuid> is gone",
    "MESSAGE 019A3C51-6A00-7B3E-8F10-52C7D1A0E001": "MESSAGE <uuid>",
    "at 0x7ffe12ab": "at <hex>",
    "commit 3f2a9bc0d1e2 is bad": "commit <hex> is bad",
    "deadbeef and facade are words": "deadbeef and facade are words",
    "digest 12345678": "digest <n>",
    "mail to bob.smith+x@example.co.uk bounced": "mail to <email> bounced",
    "x@y a.b@c.d,e%f@g-h.i.j.": "x@y <email>,<email>.",
    "since 2026-11-16T12:00:00.000123Z": "since <time>",
    "since 2026-11-16 12:00:00,123 it hangs": "since <time> it hangs",
    "since 2026-11-16T12:00:00+01:00": "since <time>",
    "since 2026-11-16": "since <time>",
    "12:30:45.123 late": "<time> late",
    "KeyError: 'amount'": "KeyError: <text>",
    'no field "a b" in `t`': "no field <text> in <text>",
    "can't find the user's 'bob'": "can't find the user's <text>",
    # All there is to tell it by.
    "'amount'": "'amount'",
    '"order 17"': '"order <n>"',
    "first line 1\nsecond line": "first line <n>",
    "Traceback (most recent call last):\n  File 'x.py', line 3, in f\nValueError: bad 12\n": "ValueError: bad <n>",
    "  spaced \t out  ": "spaced out",
    "naïve 日本 7": "naïve 日本 <n>",
    "<script>alert(1)</script>": "<script>alert(<n>)</script>",
    "x" * 1000: "x" * LONGEST_KIND,
    "": "",
    None: "",
}
