ALTER TABLE ackwise.cursor ADD COLUMN settled_at bigint;
ALTER TABLE ackwise.lease ADD COLUMN yields bigint NOT NULL DEFAULT 0;
CREATE INDEX dead_message ON ackwise.dead (part, txid);
