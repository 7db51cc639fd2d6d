-- Durations follow the database's clock plus `shift`. Brokers change `shift` when the database's clock steps.
CREATE TABLE ackwise.anchor (id bigint PRIMARY KEY CHECK (id = 1), shift bigint NOT NULL, steps bigint NOT NULL);
INSERT INTO ackwise.anchor VALUES (1, 0, 0);
