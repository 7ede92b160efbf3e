"""corpora: text of any size as shards of tokens, written in parallel and read from anywhere."""
