"""The engine: copies record batches from source to target at the same offsets, exactly once."""
