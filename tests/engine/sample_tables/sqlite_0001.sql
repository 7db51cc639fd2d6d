CREATE TABLE sample_word (word TEXT NOT NULL);
