"""Start, find again, watch and stop Spark jobs."""
