"""Where the copy of a partition goes on, and the proof that it is the same log."""
