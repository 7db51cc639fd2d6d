CREATE TABLE ackwise.sample_word (word text NOT NULL);
