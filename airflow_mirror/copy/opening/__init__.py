"""Find where the copy of a partition continues, and prove that source and target are still the same log."""
