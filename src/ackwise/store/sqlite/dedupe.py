"""Transaction ids in generations: the newest keys in memory, older ones sealed into immutable blocks behind a filter.

A plain unique index costs a random B-tree write per message. Here a push appends one row of keys per turn; when enough have
gathered they are sealed: bucketed by hash, written once in order, and found again through a filter that says "surely not"
for nearly every new key. Eight generations share a shelf and its filter, so a look-up costs two bits per shelf.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import chain

from ackwise.store.session import Session

GENERATION = 200_000
SHELF = 8
_BITS = 26
_MASK = (1 << _BITS) - 1


class Filter:
    """Two bits per key; never says no to a key it has."""

    __slots__ = ("bits",)

    def __init__(self, bits: bytes | None = None) -> None:
        self.bits = bytearray(bits) if bits is not None else bytearray(1 << (_BITS - 3))

    def add(self, hashes: Iterable[int]) -> None:
        bits = self.bits
        for h in hashes:
            low, high = h & _MASK, (h >> _BITS) & _MASK
            bits[low >> 3] |= 1 << (low & 7)
            bits[high >> 3] |= 1 << (high & 7)

    def maybe(self, hashes: list[int]) -> list[int]:
        bits = self.bits
        found = [h for h in hashes if bits[(h & _MASK) >> 3] >> (h & 7) & 1]
        return [h for h in found if bits[(high := (h >> _BITS) & _MASK) >> 3] >> (high & 7) & 1]


Places = dict[int, "int | tuple[int, ...]"]
"""Hash to its place, or to several in the order they were added."""


def _put(places: Places, h: int, pos: int) -> None:
    known = places.get(h)
    if known is None:
        places[h] = pos
    else:
        places[h] = (known, pos) if isinstance(known, int) else (*known, pos)


def _get(places: Places, h: int) -> list[int]:
    known = places.get(h, ())
    return [known] if isinstance(known, int) else list(known)


class GenerationalDedupe:
    """Belongs to the one writer. What a turn adds counts at once for the turn, and for good when it commits."""

    def __init__(self, session: Session, generation: int = GENERATION) -> None:
        self._session = session
        self._generation = generation
        self.reload()

    def reload(self) -> None:
        """Learn everything from the database."""
        self._gens: list[tuple[int, int, int, int]] = []
        self._filters: dict[int, Filter] = {}
        self._open_generation()
        self.begin()
        self.catch_up()

    def _open_generation(self) -> None:
        self._fresh: Places = {}
        self._buckets: list[array[int]] = [array("q") for _ in range(256)]
        self._last_no = 0

    @property
    def _next_gen(self) -> int:
        return self._gens[-1][0] + 1 if self._gens else 0

    def catch_up(self) -> None:
        """Learn what another process added since."""
        gens = [(int(a), int(b), int(c), int(d)) for a, b, c, d in self._session.rows("dedupe_gens")]
        if gens != self._gens:
            self._load_generations(gens)
            self._open_generation()
        for no, keys in self._session.rows("dedupe_fresh_since", {"no": self._last_no}):
            pairs = array("q", keys)
            self._learn(list(zip(pairs[::2], pairs[1::2], strict=True)))
            self._last_no = no

    def _load_generations(self, gens: list[tuple[int, int, int, int]]) -> None:
        known = set(self._gens)
        for entry in gens:
            gen = entry[0]
            shelf = gen // SHELF
            row = self._session.row("dedupe_filter_get", {"shelf": shelf}) if shelf not in self._filters else None
            one = self._filters.setdefault(shelf, Filter(row[0] if row else None))
            if entry not in known and row is None:
                for (keys,) in self._session.rows("dedupe_blocks_of_gen", {"shelf": shelf, "gen": gen}):
                    one.add(array("q", keys)[::2])
        self._keep_generations(gens)

    def _keep_generations(self, gens: list[tuple[int, int, int, int]]) -> None:
        self._gens = gens
        shelves = {gen // SHELF for gen, *_ in gens} | {self._next_gen // SHELF}
        self._filters = {shelf: one for shelf, one in self._filters.items() if shelf in shelves}

    def _learn(self, keys: list[tuple[int, int]]) -> None:
        """Keys of a commit: into memory, and step by step into the generation that will be sealed."""
        buckets = self._buckets
        fresh = self._fresh
        for key in keys:
            h = key[0]
            buckets[(h >> 56) & 0xFF].extend(key)
            if h in fresh:
                _put(fresh, h, key[1])
            else:
                fresh[h] = key[1]
        shelf = self._next_gen // SHELF
        self._filters.setdefault(shelf, Filter()).add([key[0] for key in keys])

    # a turn

    def begin(self) -> None:
        self._turn: Places = {}
        self._added: list[tuple[int, int]] = []
        self._mark = 0
        self._sealing: tuple[int, int, int, int] | None = None
        self._forgetting: list[tuple[int, int, int, int]] | None = None

    rolled_back = begin

    def mark(self) -> None:
        self._mark = len(self._added)

    def undo(self) -> None:
        del self._added[self._mark :]
        self._turn = {}
        for h, pos in self._added:
            _put(self._turn, h, pos)

    def find(self, hashes: list[int]) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for shelf, one in self._filters.items():
            for h in one.maybe(hashes):
                if shelf * SHELF <= self._next_gen - 1 and (older := self._search_shelf(shelf, h)):
                    found[h] = found.get(h, []) + older
        for known in (self._fresh, self._turn):
            if known and not known.keys().isdisjoint(hashes):
                for h in set(hashes):
                    if h in known:
                        found[h] = found.get(h, []) + _get(known, h)
        return found

    def _search_shelf(self, shelf: int, h: int) -> list[int]:
        found = []
        for _, keys in self._session.rows("dedupe_blocks", {"shelf": shelf, "bucket": (h >> 56) & 0xFF}):
            pairs = array("q", keys)
            hashes = pairs[::2]
            if h in hashes:
                found += [pairs[2 * i + 1] for i, other in enumerate(hashes) if other == h]
        return found

    def add(self, keys: list[tuple[int, int]]) -> None:
        self._added += keys
        for h, pos in keys:
            _put(self._turn, h, pos)

    def write(self, now: int) -> None:
        """Before the commit: the turn's keys as one row; seal when enough have gathered."""
        if not self._added:
            return
        flat = array("q", chain.from_iterable(self._added))
        self._session.run("dedupe_fresh_insert", {"keys": flat.tobytes()})
        if len(self._fresh) + len(self._added) >= self._generation:
            self._seal(now)

    def _seal(self, now: int) -> None:
        """Write the gathered keys as one generation, bucket by bucket. The turn's own keys open the next one."""
        gen = self._next_gen
        rows = [
            {"shelf": gen // SHELF, "bucket": number, "gen": gen, "keys": bucket.tobytes()}
            for number, bucket in enumerate(self._buckets)
            if bucket
        ]
        self._session.many("dedupe_block_insert", rows)
        before = self._gens[-1][2] if self._gens else now
        self._sealing = (gen, min(before, now), now, sum(map(len, self._buckets)) // 2)
        self._session.run("dedupe_gen_insert", dict(zip(("gen", "from_at", "to_at", "n"), self._sealing, strict=True)))
        self._session.run("dedupe_fresh_seal")
        if gen % SHELF == SHELF - 1:
            self._session.run(
                "dedupe_filter_put", {"shelf": gen // SHELF, "bits": bytes(self._filters[gen // SHELF].bits)}
            )

    def committed(self) -> None:
        """After the commit: what the turn did is everybody's."""
        if self._forgetting is not None:
            self._keep_generations(self._forgetting)
        if self._sealing is not None:
            last = self._last_no
            self._gens = [*self._gens, self._sealing]
            self._open_generation()
            self._last_no = last
        if self._added:
            self._last_no += 1
            self._learn(self._added)
        self.begin()

    def forget(self, before: int, limit: int) -> int:
        """Whole generations whose newest key is out of every window."""
        gone = [entry for entry in self._gens if entry[2] <= before][:limit]
        kept = [entry for entry in self._gens if entry not in gone]
        shelves = {gen // SHELF for gen, *_ in kept}
        for gen, *_ in gone:
            self._session.run("dedupe_block_delete", {"shelf": gen // SHELF, "gen": gen})
            self._session.run("dedupe_gen_delete", {"gen": gen})
            if gen // SHELF not in shelves:
                self._session.run("dedupe_filter_delete", {"shelf": gen // SHELF})
        if gone and kept:
            self._forgetting = kept
        elif gone:
            # The newest generation's row stays: it carries the number that the next one counts from.
            gen, from_at, to_at, _ = gone[-1]
            self._forgetting = [(gen, from_at, to_at, 0)]
            row = {"gen": gen, "from_at": from_at, "to_at": to_at, "n": 0}
            self._session.run("dedupe_gen_insert", row)
        return len(gone) if kept else 0
