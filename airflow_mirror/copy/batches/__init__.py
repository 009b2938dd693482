"""What becomes of a batch. Bytes in, steps out: nothing in here can block."""
