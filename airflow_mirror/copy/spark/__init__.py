"""The two modules through which Spark enters: the bulk copy and the tail."""
