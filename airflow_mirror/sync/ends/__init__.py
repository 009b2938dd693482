"""Where the source's logs end, noted on the target: what a failover measures a loss by."""
