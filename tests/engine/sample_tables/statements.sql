-- name: sample_add: adds a word
INSERT INTO sample_word (word) VALUES (:word);

-- name: sample_words: all words
SELECT word FROM sample_word ORDER BY word;

-- name: sample_clear: deletes all words
DELETE FROM sample_word;

-- name: sample_empty: empty words
SELECT word FROM sample_word WHERE word = '';
