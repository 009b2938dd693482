"""Pass, re-encode, join or drop a batch. Bytes in, steps out: nothing here blocks."""
