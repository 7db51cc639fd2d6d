-- name: hook_get: a hook of a queue
SELECT q.name, h.queue, h.name, h.url, h.payload, h.mark, h.letter, h.owner, h.until, h.failing_from, h.failures, h.next_at,
  h.paused, h.error, h.created_at
FROM hook AS h JOIN queue AS q ON q.id = h.queue WHERE h.queue = :queue AND h.name = :name;

-- name: hooks_page: hooks of existing queues, after a queue and a name
SELECT q.name, h.queue, h.name, h.url, h.payload, h.mark, h.letter, h.owner, h.until, h.failing_from, h.failures, h.next_at,
  h.paused, h.error, h.created_at
FROM hook AS h JOIN queue AS q ON q.id = h.queue
WHERE q.deleted_at IS NULL AND (h.queue, h.name) > (:queue, :name) ORDER BY h.queue, h.name LIMIT :limit;

-- name: hooks_of_queue: hooks of a queue
SELECT q.name, h.queue, h.name, h.url, h.payload, h.mark, h.letter, h.owner, h.until, h.failing_from, h.failures, h.next_at,
  h.paused, h.error, h.created_at
FROM hook AS h JOIN queue AS q ON q.id = h.queue WHERE h.queue = :queue ORDER BY h.name LIMIT :limit;

-- name: hook_put: creates a hook, or changes it and ends its failure; its place stays
INSERT INTO hook (queue, name, url, payload, mark, letter, until, failures, next_at, paused, error, created_at)
VALUES (:queue, :name, :url, :payload, :mark, :letter, 0, 0, 0, 0, '', :created_at)
ON CONFLICT (queue, name) DO UPDATE SET url = excluded.url, payload = excluded.payload, failing_from = NULL, failures = 0,
  next_at = 0, paused = 0, error = '';

-- name: hook_start: the place behind all dead letters
SELECT :now, coalesce(max(id), 0) FROM dead;

-- name: hook_horizon: the mark below which no dead letter will appear
SELECT 4611686018427387904;

-- name: hook_rebase: forgets marks that this database has not given out
UPDATE dead SET mark = 0 WHERE queue = :queue AND mark >= :horizon;

-- name: hook_reset: sets the place of a hook
UPDATE hook SET mark = :mark, letter = :letter WHERE queue = :queue AND name = :name;

-- name: hook_take: gives a hook to an owner, unless another owner holds it
UPDATE hook SET owner = :owner, until = :until
WHERE queue = :queue AND name = :name AND paused = 0 AND (owner IS NULL OR owner = :owner OR until <= :now);

-- name: hook_free: ends the lease of an owner
UPDATE hook SET owner = NULL, until = 0 WHERE queue = :queue AND name = :name AND owner = :owner;

-- name: hook_done: moves a hook behind a reported letter
UPDATE hook SET mark = :mark, letter = :letter, until = :until, failing_from = NULL, failures = 0, next_at = 0, error = ''
WHERE queue = :queue AND name = :name AND owner = :owner AND until > :now;

-- name: hook_failed: notes that a letter could not be reported, and frees the hook
UPDATE hook SET owner = NULL, until = 0, failing_from = :failing_from, failures = :failures, next_at = :next_at,
  paused = :paused, error = :error
WHERE queue = :queue AND name = :name AND owner = :owner AND until > :now;

-- name: hook_remove: deletes a hook
DELETE FROM hook WHERE queue = :queue AND name = :name;

-- name: hooks_remove: deletes the hooks of a queue
DELETE FROM hook WHERE queue = :queue;

-- name: hook_letters: dead letters behind a place, in the order of their marks, with their sizes
SELECT id, mark, length(snapshot) + length(history) + length(error) FROM dead
WHERE queue = :queue AND (mark, id) > (:mark, :letter) AND mark < :horizon ORDER BY mark, id LIMIT :limit;
