"""Whether a mirror that replicates is well: what both clusters say of it, and what is wrong with that."""
