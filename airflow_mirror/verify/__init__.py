"""Proof that two partitions hold the same records at the same offsets."""
