-- name: sample_lock: locks the words
SELECT pg_advisory_xact_lock(17);
