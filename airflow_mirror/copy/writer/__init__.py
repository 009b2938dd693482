"""Who writes: the lease, producer ids, and whatever is written that is no record of the source."""
