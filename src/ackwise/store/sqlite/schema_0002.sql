ALTER TABLE cursor ADD COLUMN settled_at INTEGER;
ALTER TABLE lease ADD COLUMN yields INTEGER NOT NULL DEFAULT 0;
CREATE INDEX dead_message ON dead (part, txid);
