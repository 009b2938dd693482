"""The task loop: it reads, writes, waits for coordinators and judges failures, for many partitions at once."""
