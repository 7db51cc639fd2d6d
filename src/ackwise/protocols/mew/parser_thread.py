"""Parses long texts in a thread of its own, so that short requests do not wait for them."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from ackwise.broker.room import WaitingRoom
from ackwise.graph.language import Parsed, parse

MOST_WAITING = 64
"""Texts in the thread's queue."""


@cache
def _thread() -> ThreadPoolExecutor:
    """One thread for the process: the parser is Python code, so a second thread would not be faster."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="ackwise-parse")


class AsyncParser:
    """Parses in a thread while the event loop runs."""

    def __init__(self) -> None:
        self._room = WaitingRoom(MOST_WAITING, "long texts wait to be parsed")

    async def parse(self, text: str, caller: str = "") -> Parsed:
        """Parse a text. Raises `Overloaded` if too many texts wait, in total or of this caller."""
        with self._room.place(caller):
            return await asyncio.get_running_loop().run_in_executor(_thread(), parse, text)


class Parser:
    """Parses in the caller's thread."""

    def parse(self, text: str, caller: str = "") -> Parsed:
        return parse(text)
