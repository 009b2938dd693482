"""The writer lease, producer ids, and everything written to the target that is not a source record."""
