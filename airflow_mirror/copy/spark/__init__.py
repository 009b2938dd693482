"""The two doors through which Spark enters: the bulk copy and the tail."""
