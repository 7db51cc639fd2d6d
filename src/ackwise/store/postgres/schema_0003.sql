ALTER TABLE ackwise.grp ADD COLUMN expired_leases bigint NOT NULL DEFAULT 0;
