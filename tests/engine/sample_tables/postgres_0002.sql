ALTER TABLE ackwise.sample_word ADD COLUMN language text NOT NULL DEFAULT 'en';
