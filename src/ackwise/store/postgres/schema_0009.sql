-- Functions of the SQL views (views.sql), which are created after the last step. None of them reads a table.
CREATE OR REPLACE FUNCTION ackwise.view_instant(us bigint) RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
  RETURN timestamptz 'epoch' + us * interval '1 microsecond';

CREATE OR REPLACE FUNCTION ackwise.view_lease_id(no bigint, tag bigint) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
  digits text := '';
BEGIN
  LOOP
    digits := substr('0123456789abcdefghijklmnopqrstuvwxyz', (no % 36)::int + 1, 1) || digits;
    no := no / 36;
    EXIT WHEN no = 0;
  END LOOP;
  RETURN 'L' || digits || '-' || lpad(to_hex(tag), 8, '0');
END $$;

-- The id of a message: `at` counts the messages of the segment from 0.
CREATE OR REPLACE FUNCTION ackwise.view_message_id(body bytea, at int) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
  RETURN CASE WHEN get_byte(substr(body, 2, 1), 0) & 1 = 1
    THEN encode(substr(body, 21 + 16 * at, 16), 'hex')::uuid
    ELSE (encode(substr(body, 21, 8), 'hex')
      || lpad(to_hex(('x' || encode(substr(body, 29, 8), 'hex'))::bit(64)::bigint + at), 16, '0'))::uuid END;

-- When a message was pushed. A delayed message was stored later: then its id tells.
CREATE OR REPLACE FUNCTION ackwise.view_created_at(id uuid, stored_at bigint) RETURNS timestamptz
  LANGUAGE sql STABLE STRICT PARALLEL SAFE
  RETURN timestamptz 'epoch' + interval '1 microsecond' * least(
    stored_at, ('x' || substr(replace(id::text, '-', ''), 1, 12))::bit(48)::bigint * 1000 + 999);

-- NULL for bytes that jsonb cannot store.
CREATE OR REPLACE FUNCTION ackwise.view_json(value bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
BEGIN
  RETURN convert_from(value, 'UTF8')::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
  RETURN NULL;
END $$;

-- Four bytes as a number. `at` counts from 0.
CREATE OR REPLACE FUNCTION ackwise.view_number(body bytea, at int) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
  RETURN get_byte(body, at) | (get_byte(body, at + 1) << 8) | (get_byte(body, at + 2) << 16)
    | (get_byte(body, at + 3) << 24);

-- The bytes of a message in a column of a segment with `n` messages. `start` is where the column begins.
CREATE OR REPLACE FUNCTION ackwise.view_cell(body bytea, start int, n int, at int) RETURNS bytea
  LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
  RETURN substr(body, 1 + start + 4 * (n + 1) + ackwise.view_number(body, start + 4 * at),
    ackwise.view_number(body, start + 4 * at + 4) - ackwise.view_number(body, start + 4 * at));

-- The messages of a segment. The layout of `packed` is in ackwise/engine/segment.py; it begins with its version, 1.
-- The body of the function is bound to its functions when it is created, so that a reader needs no right on the schema.
CREATE OR REPLACE FUNCTION ackwise.view_segment(packed bytea, first bigint)
  RETURNS TABLE (seq bigint, message_id uuid, transaction_id text, payload bytea, extras bytea)
  LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE ROWS 100
BEGIN ATOMIC
  SELECT view_segment.first + i, ackwise.view_message_id(c.body, i),
    coalesce(nullif(convert_from(ackwise.view_cell(c.body, c.txids, c.n, i), 'UTF8'), ''),
      ackwise.view_message_id(c.body, i)::text),
    ackwise.view_cell(c.body, c.payloads, c.n, i),
    CASE WHEN c.has_extras THEN ackwise.view_cell(c.body, c.extras, c.n, i) END
  FROM (
    SELECT b.body, b.n, b.txids, b.payloads, b.has_extras,
      b.payloads + 4 * (b.n + 1) + ackwise.view_number(b.body, 12) AS extras
    FROM (
      SELECT a.body, a.n, a.txids, a.has_extras,
        a.txids + 4 * (a.n + 1) + ackwise.view_number(a.body, 8) AS payloads
      FROM (
        SELECT p.body, get_byte(p.body, 1) & 2 = 2 AS has_extras,
          CASE WHEN get_byte(p.body, 0) = 1 THEN ackwise.view_number(p.body, 4)
            ELSE ('unknown segment layout ' || get_byte(p.body, 0))::int END AS n,  -- the cast fails with this text
          20 + CASE WHEN get_byte(p.body, 1) & 1 = 1 THEN 16 * ackwise.view_number(p.body, 4) ELSE 16 END AS txids
        -- The concatenation copies a large segment out of its table once.
        FROM (SELECT view_segment.packed || ''::bytea AS body OFFSET 0) AS p OFFSET 0) AS a OFFSET 0) AS b OFFSET 0) AS c
  CROSS JOIN generate_series(0, c.n - 1) AS i;
END;

-- The views show the ids of partitions as uuid.
CREATE INDEX IF NOT EXISTS part_as_uuid ON ackwise.part ((uuid::uuid));

-- Order of the dead letters for hooks: the number of the transaction that wrote the letter. A hook reads only letters
-- of transactions before the oldest running one, so no letter appears behind its place. Older letters have 0.
ALTER TABLE ackwise.dead ADD COLUMN IF NOT EXISTS mark bigint NOT NULL DEFAULT 0;
CREATE INDEX IF NOT EXISTS dead_mark ON ackwise.dead (queue, mark, id);
-- Hooks: readers of a queue's dead letters, with their place behind the last reported letter.
CREATE TABLE IF NOT EXISTS ackwise.hook (
  queue bigint NOT NULL, name text COLLATE "C" NOT NULL, url text, payload bigint NOT NULL, mark bigint NOT NULL,
  letter bigint NOT NULL, owner text COLLATE "C", until bigint NOT NULL, failing_from bigint, failures bigint NOT NULL,
  next_at bigint NOT NULL, paused bigint NOT NULL, error text NOT NULL, created_at bigint NOT NULL,
  PRIMARY KEY (queue, name)) WITH (fillfactor = 70);
