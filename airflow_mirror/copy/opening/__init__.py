"""Finds where the copy of a partition continues, and proves that it is the same log."""
