ALTER TABLE ackwise.lease ADD COLUMN returned bigint NOT NULL DEFAULT 0;
ALTER TABLE ackwise.lease ADD COLUMN dropped text;
