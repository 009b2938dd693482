"""Progress of a running copy: collected from its tasks, summed up, and shown."""
