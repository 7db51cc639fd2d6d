-- No statement read the column: the lease has the owner.
ALTER TABLE span DROP COLUMN last_owner;
-- Extensions have schema versions of their own. The tables that schema 4 added are version 1 of MEW's tables.
INSERT INTO ackwise.meta SELECT 'schema:mew', '1' FROM pg_tables WHERE schemaname = 'ackwise' AND tablename = 'mew_state';
