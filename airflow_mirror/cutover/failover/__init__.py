"""Failover: the source is gone, and the target is promoted from what its own ledger knows."""
