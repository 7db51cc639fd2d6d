"""Transaction ids in generations: the newest keys in memory, older ones sealed into immutable blocks behind a filter.

A plain unique index costs a random B-tree write per message. Here a push appends one row of keys per turn; when enough
have gathered they are sealed: bucketed by hash, written once in order, and found again through a filter that says
"surely not" for nearly every new key. Sixteen generations share a shelf and its filter, so a look-up costs one byte
per shelf.
"""

from __future__ import annotations

from array import array
from itertools import groupby

from ackwise.core.errors import StoreCorrupt
from ackwise.store.session import Session
from ackwise.store.sqlite.filters import Filter
from ackwise.store.sqlite.keys import Places, blocks, bucket_of, known_places, pairs, remember

GENERATION = 200_000
SHELF = 16


def search_shelf(session: Session, shelf: int, h: int) -> list[int]:
    """The places of a hash in the generations of a shelf."""
    found: list[int] = []
    for _, keys in session.rows("dedupe_blocks", {"shelf": shelf, "bucket": bucket_of(h)}):
        block = array("q", keys)
        half = len(block) // 2
        if h in block[:half]:
            found += [block[half + i] for i in range(half) if block[i] == h]
    return found


def places_in(keys: bytes, runs: bytes, h: int) -> list[int]:
    """The places of a hash among the keys of one turn."""
    places = (pos for start, count in pairs(runs) for pos in range(start, start + count))
    return [pos for key, pos in zip(array("q", keys), places, strict=True) if key == h]


class StoredKeys:
    """The keys as the database has them, for a reader: it needs nothing of the writer's memory."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, hashes: list[int]) -> dict[int, list[int]]:
        shelves = sorted({gen // SHELF for gen, *_ in self._session.rows("dedupe_gens")})
        found = {}
        for h in hashes:
            places = [pos for shelf in shelves for pos in search_shelf(self._session, shelf, h)]
            for keys, runs in self._session.rows("dedupe_fresh_with", {"key": array("q", [h]).tobytes()}):
                places += places_in(keys, runs, h)
            if places:
                found[h] = places
        return found


class GenerationalDedupe:
    """Belongs to the one writer. What a turn adds counts at once for the turn, and for good when it commits."""

    asks = False

    def __init__(self, session: Session, generation: int = GENERATION) -> None:
        self._session = session
        self._generation = generation
        self._gens: list[tuple[int, int, int, int]] = []
        self._filters: dict[int, Filter] = {}
        self._behind = True
        self._open_generation()
        self.begin()

    def _open_generation(self) -> None:
        self._fresh: Places = {}
        self._last_no = 0

    @property
    def _next_gen(self) -> int:
        return self._gens[-1][0] + 1 if self._gens else 0

    def others_wrote(self) -> None:
        """Another process may have added keys. Whoever never pushes never has to learn them."""
        self._behind = True

    def _catch_up(self) -> None:
        if not self._behind:
            return
        gens = self._stored_generations()
        if gens != self._gens:
            self._load_generations(gens)
            self._open_generation()
        for no, keys, runs in self._session.rows("dedupe_fresh_since", {"no": self._last_no}):
            hashes, places = array("q", keys).tolist(), list(pairs(runs))
            if any(count < 0 for _, count in places) or sum(count for _, count in places) != len(hashes):
                raise StoreCorrupt("what is kept of transaction ids does not add up; restore the file from a backup")
            remember(self._fresh, hashes, [pos for first, count in places for pos in range(first, first + count)])
            self._last_no = no
        self._behind = False

    def _stored_generations(self) -> list[tuple[int, int, int, int]]:
        return [(int(a), int(b), int(c), int(d)) for a, b, c, d in self._session.rows("dedupe_gens")]

    def _load_generations(self, gens: list[tuple[int, int, int, int]]) -> None:
        """Numbers only rise: on each shelf, what is new comes after what is known."""
        new = sorted({gen for gen, *_ in gens} - {gen for gen, *_ in self._gens})
        for shelf, found in groupby(new, lambda gen: gen // SHELF):
            first = next(found)
            if shelf not in self._filters:
                full = self._session.row("dedupe_filter_get", {"shelf": shelf})
                self._filters[shelf] = Filter(full[0] if full else None)
                if full:
                    continue
                first = shelf * SHELF
            hashes = array("q")
            for (keys,) in self._session.rows("dedupe_blocks_since", {"shelf": shelf, "gen": first}):
                hashes.frombytes(keys[: len(keys) // 2])
            self._filters[shelf].add(hashes)
        self._keep_generations(gens)

    def _keep_generations(self, gens: list[tuple[int, int, int, int]]) -> None:
        self._gens = gens
        shelves = {gen // SHELF for gen, *_ in gens} | {self._next_gen // SHELF}
        self._filters = {shelf: one for shelf, one in self._filters.items() if shelf in shelves}

    # a turn

    def begin(self) -> None:
        self._turn: Places = {}
        self._hashes: list[int] = []
        self._runs: list[int] = []
        self._mark = (0, 0)
        self._seen = False
        self._sealing: tuple[int, int, int, int] | None = None
        self._forgetting: list[tuple[int, int, int, int]] | None = None

    rolled_back = begin

    def mark(self) -> None:
        self._mark = (len(self._hashes), len(self._runs))

    def undo(self) -> None:
        hashes, runs = self._mark
        del self._hashes[hashes:], self._runs[runs:]
        self._turn = {}
        remember(self._turn, self._hashes, self._turn_places())

    def _turn_places(self) -> list[int]:
        return [pos for start, count in pairs(self._runs) for pos in range(start, start + count)]

    def expect(self, hashes: list[int]) -> None:
        """Nothing to gain: the keys are here."""

    def find(self, hashes: list[int]) -> dict[int, list[int]]:
        self._catch_up()
        found: dict[int, list[int]] = {}
        for shelf, one in self._filters.items():
            if shelf * SHELF >= self._next_gen:
                continue
            for h in one.maybe(hashes):
                if older := search_shelf(self._session, shelf, h):
                    found[h] = found.get(h, []) + older
        for known in (self._fresh, self._turn):
            if known and not known.keys().isdisjoint(hashes):
                for h in set(hashes):
                    if h in known:
                        found[h] = found.get(h, []) + known_places(known, h)
        self._seen = self._seen or bool(found)
        return found

    def add(self, hashes: list[int], place: int) -> None:
        """Keys that `find` was asked about."""
        self._hashes += hashes
        self._runs += (place, len(hashes))
        if self._seen:
            remember(self._turn, hashes, range(place, place + len(hashes)))
        else:
            # Nothing of this turn was found anywhere, so these keys are new to all of us.
            self._turn.update(zip(hashes, range(place, place + len(hashes)), strict=True))

    def write(self, now: int) -> None:
        """Before the commit: the turn's keys as one row; seal when enough have gathered."""
        if not self._hashes:
            return
        row = {"keys": array("q", self._hashes).tobytes(), "runs": array("q", self._runs).tobytes()}
        self._session.run("dedupe_fresh_insert", row)
        if len(self._fresh) + len(self._hashes) >= self._generation:
            self._seal(now)

    def _seal(self, now: int) -> None:
        """Write the gathered keys as one generation, bucket by bucket. The turn's own keys open the next one."""
        gen = self._next_gen
        shelf = gen // SHELF
        hashes, found = blocks(self._fresh)
        rows = ({"shelf": shelf, "bucket": bucket, "gen": gen, "keys": keys} for bucket, keys in found)
        self._session.many("dedupe_block_insert", rows)
        if shelf not in self._filters:
            self._filters[shelf] = Filter()
        # Bits set for a turn that is rolled back only make the filter say "maybe" more often.
        self._filters[shelf].add(hashes)
        before = self._gens[-1][2] if self._gens else now
        self._sealing = (gen, min(before, now), now, len(hashes))
        self._session.run("dedupe_gen_insert", dict(zip(("gen", "from_at", "to_at", "n"), self._sealing, strict=True)))
        self._session.run("dedupe_fresh_seal")
        if gen % SHELF == SHELF - 1:
            self._session.run(
                "dedupe_filter_put", {"shelf": gen // SHELF, "bits": bytes(self._filters[gen // SHELF].slots)}
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
        if self._hashes:
            self._last_no += 1
            if self._seen:
                remember(self._fresh, self._hashes, self._turn_places())
            else:
                self._fresh.update(self._turn)
        self.begin()

    def forget(self, before: int, limit: int) -> int:
        """Whole generations whose newest key is out of every window."""
        if not any(to_at <= before for _, _, to_at, _ in self._stored_generations()):
            return 0
        self._catch_up()
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
