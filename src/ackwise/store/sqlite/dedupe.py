"""Transaction ids in generations.

A plain unique index would cost a random B-tree write per message. Instead:

- Each turn appends one row with the keys (hashes of transaction ids) of its pushes.
- When `GENERATION` keys have gathered, they are sealed as a generation: sorted by hash, cut into buckets, written once.
- Sixteen generations form a shelf with one Bloom filter. The filter excludes nearly every new key, so a look-up costs
  one byte per shelf.
"""

from __future__ import annotations

from array import array
from itertools import groupby

from ackwise.core.errors import StoreCorrupt
from ackwise.engine.ports import Session
from ackwise.store.sqlite.dedupe_blocks import (
    BloomFilter,
    Places,
    add_places,
    bucket_of,
    key_blocks,
    place_runs,
    places_of,
)

GENERATION = 200_000
SHELF = 16


def search_shelf(session: Session, shelf: int, h: int) -> list[int]:
    """Places (message positions) of a hash in the generations of a shelf."""
    places: list[int] = []
    for _, keys in session.rows("dedupe_blocks", {"shelf": shelf, "bucket": bucket_of(h)}):
        block = array("q", keys)
        half = len(block) // 2
        if h in block[:half]:
            places += [block[half + i] for i in range(half) if block[i] == h]
    return places


def places_in(keys: bytes, runs: bytes, h: int) -> list[int]:
    """Places of a hash among the keys of one turn."""
    places = (pos for start, count in place_runs(runs) for pos in range(start, start + count))
    return [pos for key, pos in zip(array("q", keys), places, strict=True) if key == h]


class StoredKeys:
    """Transaction ids for a reader. Reads only the database, not the writer's memory."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def find(self, hashes: list[int]) -> dict[int, list[int]]:
        shelves = sorted({gen // SHELF for gen, *_ in self._session.rows("dedupe_gens")})
        matches = {}
        for h in hashes:
            places = [pos for shelf in shelves for pos in search_shelf(self._session, shelf, h)]
            for keys, runs in self._session.rows("dedupe_fresh_with", {"key": array("q", [h]).tobytes()}):
                places += places_in(keys, runs, h)
            if places:
                matches[h] = places
        return matches


class GenerationalDedupe:
    """Transaction ids for the writer. A turn sees its own keys at once. Other turns see them after the commit."""

    asks = False

    def __init__(self, session: Session, generation: int = GENERATION) -> None:
        self._session = session
        self._generation = generation
        self._gens: list[tuple[int, int, int, int]] = []
        self._filters: dict[int, BloomFilter] = {}
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
        """Note that another process may have added keys. The next `find` loads them."""
        self._behind = True

    def _catch_up(self) -> None:
        """Load the keys that other processes added."""
        if not self._behind:
            return
        gens = self._stored_generations()
        if gens != self._gens:
            self._load_generations(gens)
            self._open_generation()
        for no, keys, runs in self._session.rows("dedupe_fresh_since", {"no": self._last_no}):
            hashes, places = array("q", keys).tolist(), list(place_runs(runs))
            if any(count < 0 for _, count in places) or sum(count for _, count in places) != len(hashes):
                raise StoreCorrupt(
                    "stored transaction ids do not match their positions; restore the file from a backup"
                )
            add_places(self._fresh, hashes, [pos for first, count in places for pos in range(first, first + count)])
            self._last_no = no
        self._behind = False

    def _stored_generations(self) -> list[tuple[int, int, int, int]]:
        return [(int(a), int(b), int(c), int(d)) for a, b, c, d in self._session.rows("dedupe_gens")]

    def _load_generations(self, gens: list[tuple[int, int, int, int]]) -> None:
        """Add new generations to the filters of their shelves. Numbers only rise, so new ones follow known ones."""
        new = sorted({gen for gen, *_ in gens} - {gen for gen, *_ in self._gens})
        for shelf, added in groupby(new, lambda gen: gen // SHELF):
            first = next(added)
            if shelf not in self._filters:
                stored = self._session.row("dedupe_filter_get", {"shelf": shelf})
                self._filters[shelf] = BloomFilter(stored[0] if stored else None)
                if stored:
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
        self._filters = {shelf: bloom for shelf, bloom in self._filters.items() if shelf in shelves}

    # one turn

    def begin(self) -> None:
        self.changed = False
        """Whether this turn added, found or removed keys."""
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
        add_places(self._turn, self._hashes, self._turn_places())

    def _turn_places(self) -> list[int]:
        return [pos for start, count in place_runs(self._runs) for pos in range(start, start + count)]

    def expect(self, hashes: list[int]) -> None:
        """Does nothing: the keys are in memory or in the same file."""

    def find(self, hashes: list[int]) -> dict[int, list[int]]:
        self._catch_up()
        matches: dict[int, list[int]] = {}
        for shelf, bloom in self._filters.items():
            if shelf * SHELF >= self._next_gen:
                continue
            for h in bloom.candidates(hashes):
                if older := search_shelf(self._session, shelf, h):
                    matches[h] = matches.get(h, []) + older
        for known in (self._fresh, self._turn):
            if known and not known.keys().isdisjoint(hashes):
                for h in set(hashes):
                    if h in known:
                        matches[h] = matches.get(h, []) + places_of(known, h)
        if matches:
            self._seen = self.changed = True
        return matches

    def add(self, hashes: list[int], place: int) -> None:
        """Add keys of this turn, after `find` looked them up."""
        self.changed = True
        self._hashes += hashes
        self._runs += (place, len(hashes))
        if self._seen:
            add_places(self._turn, hashes, range(place, place + len(hashes)))
        else:
            # No key of this turn was found, so these keys are new.
            self._turn.update(zip(hashes, range(place, place + len(hashes)), strict=True))

    def write(self, now: int) -> None:
        """Write the keys of the turn as one row before the commit. Seals a generation if enough keys have gathered."""
        if not self._hashes:
            return
        row = {"keys": array("q", self._hashes).tobytes(), "runs": array("q", self._runs).tobytes()}
        self._session.run("dedupe_fresh_insert", row)
        if len(self._fresh) + len(self._hashes) >= self._generation:
            self._seal(now)

    def _seal(self, now: int) -> None:
        """Write the gathered keys as one generation, bucket by bucket. The turn's own keys start the next one."""
        gen = self._next_gen
        shelf = gen // SHELF
        hashes, blocks = key_blocks(self._fresh)
        rows = ({"shelf": shelf, "bucket": bucket, "gen": gen, "keys": keys} for bucket, keys in blocks)
        self._session.many("dedupe_block_insert", rows)
        if shelf not in self._filters:
            self._filters[shelf] = BloomFilter()
        # After a rollback the bits stay set. They only add candidates that the look-up then excludes.
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
        """Make the keys of the committed turn visible to later turns."""
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
                add_places(self._fresh, self._hashes, self._turn_places())
            else:
                self._fresh.update(self._turn)
        self.begin()

    def forget(self, before: int, limit: int) -> int:
        """Delete up to `limit` generations whose newest key is older than `before`."""
        if not any(to_at <= before for _, _, to_at, _ in self._stored_generations()):
            return 0
        self._catch_up()
        self.changed = True
        expired = [entry for entry in self._gens if entry[2] <= before][:limit]
        kept = [entry for entry in self._gens if entry not in expired]
        shelves = {gen // SHELF for gen, *_ in kept}
        for gen, *_ in expired:
            self._session.run("dedupe_block_delete", {"shelf": gen // SHELF, "gen": gen})
            self._session.run("dedupe_gen_delete", {"gen": gen})
            if gen // SHELF not in shelves:
                self._session.run("dedupe_filter_delete", {"shelf": gen // SHELF})
        if expired and kept:
            self._forgetting = kept
        elif expired:
            # The row of the newest generation stays: the next generation's number follows it.
            gen, from_at, to_at, _ = expired[-1]
            self._forgetting = [(gen, from_at, to_at, 0)]
            row = {"gen": gen, "from_at": from_at, "to_at": to_at, "n": 0}
            self._session.run("dedupe_gen_insert", row)
        return len(expired) if kept else 0
