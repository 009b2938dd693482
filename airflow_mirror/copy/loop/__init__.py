"""The task loop: it reads, writes, waits for coordinators and handles failures, for many partitions at once."""
