"""Parsing of long texts: on one thread of its own, so that no list and no short query waits for a parser."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from ackwise.core.errors import Overloaded
from ackwise.dialects.mew.language import Parsed, parse

MOST_WAITING = 64


@cache
def _thread() -> ThreadPoolExecutor:
    """One thread for the process: the parser is Python code, and a second thread would only take turns with it."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="ackwise-parse")


class AsyncParser:
    """Parses beside the event loop."""

    def __init__(self) -> None:
        self._waiting = 0

    async def parse(self, text: str) -> Parsed:
        """Raises `Overloaded` when too many texts wait."""
        if self._waiting >= MOST_WAITING:
            raise Overloaded(f"{MOST_WAITING} long texts wait to be parsed; try again in a moment")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(_thread(), parse, text)
        finally:
            self._waiting -= 1


class Parser:
    """Parses at once: the caller is a thread of its own."""

    def parse(self, text: str) -> Parsed:
        return parse(text)
