-- name: anchor_seen: records the anchored instant and its distance from the wall clock
UPDATE anchor SET seen = :seen, shift = :shift WHERE id = 1;

-- name: store_bytes: size of the database file
SELECT c.page_count * s.page_size FROM pragma_page_count() AS c, pragma_page_size() AS s;

-- name: scheduled_due: scheduled messages that are due
SELECT no, queue, part, prio, due_at, created_at, body FROM scheduled
WHERE due_at <= :now ORDER BY due_at, no LIMIT :limit;

-- name: leases_expired: leases past their deadline that are not ended
SELECT no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  ended_at, end_kind, lost, yields, returned, dropped
FROM lease WHERE ended_at IS NULL AND queue <> 0 AND deadline <= :now ORDER BY deadline LIMIT :limit;

-- name: lease_of_claim: the lease of a claim key
SELECT no, tag, queue, grp, owner, instance, exclusivity, bulk, deadline, made_at, granted, key, fingerprint,
  ended_at, end_kind, lost, yields, returned, dropped
FROM lease WHERE grp = :grp AND key = :key;

-- name: leases_forget: deletes old tombstones among a bounded number of the oldest leases, except the highest number
DELETE FROM lease WHERE no IN (
  SELECT no FROM (SELECT no, ended_at FROM lease WHERE no < :below ORDER BY no LIMIT 5 * :limit)
  WHERE ended_at IS NOT NULL AND (ended_at <= :cutoff OR no < :floor) ORDER BY no LIMIT :limit);

-- name: dedupe_fresh_insert: inserts the keys of the turn's pushes
INSERT INTO dedupe_fresh (keys, runs) VALUES (:keys, :runs);

-- name: dedupe_fresh_since: keys that another process inserted
SELECT no, keys, runs FROM dedupe_fresh WHERE no > :no ORDER BY no;

-- name: dedupe_fresh_with: unsealed rows whose bytes contain a key; they hold at most one generation
SELECT keys, runs FROM dedupe_fresh WHERE instr(keys, :key) > 0 ORDER BY no;

-- name: dedupe_fresh_seal: deletes the rows that a generation contains, all except this turn's; row numbers keep rising
DELETE FROM dedupe_fresh WHERE no < (SELECT max(no) FROM dedupe_fresh);

-- name: dedupe_gens: all generations
SELECT gen, from_at, to_at, n FROM dedupe_gen ORDER BY gen;

-- name: dedupe_gen_insert: inserts a sealed generation
INSERT INTO dedupe_gen (gen, from_at, to_at, n) VALUES (:gen, :from_at, :to_at, :n);

-- name: dedupe_gen_delete: deletes a generation outside all dedupe windows
DELETE FROM dedupe_gen WHERE gen = :gen;

-- name: dedupe_block_insert: inserts one bucket of a generation
INSERT INTO dedupe_block (shelf, bucket, gen, keys) VALUES (:shelf, :bucket, :gen, :keys);

-- name: dedupe_blocks: one bucket of every generation on a shelf
SELECT gen, keys FROM dedupe_block WHERE shelf = :shelf AND bucket = :bucket ORDER BY gen;

-- name: dedupe_blocks_since: blocks of a shelf from a generation on
SELECT keys FROM dedupe_block WHERE shelf = :shelf AND gen >= :gen;

-- name: dedupe_block_delete: deletes the blocks of a generation
DELETE FROM dedupe_block WHERE shelf = :shelf AND gen = :gen;

-- name: dedupe_filter_put: writes the filter of a full shelf
INSERT INTO dedupe_filter (shelf, bits) VALUES (:shelf, :bits) ON CONFLICT DO NOTHING;

-- name: dedupe_filter_get: the filter of a full shelf
SELECT bits FROM dedupe_filter WHERE shelf = :shelf;

-- name: dedupe_filter_delete: deletes the filter of an empty shelf
DELETE FROM dedupe_filter WHERE shelf = :shelf;

-- name: spool_lock: the writer of a file is alone, so no other broker replays the spool
SELECT 1;

-- name: database_stats: statistics of the database as JSON; SQLite keeps none
SELECT '{}';
