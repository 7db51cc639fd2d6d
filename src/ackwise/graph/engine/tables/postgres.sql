-- name: mew_lock: locks the graph: one turn at a time changes it
SELECT id FROM mew_state WHERE id = 1 FOR UPDATE;
