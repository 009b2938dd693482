"""How far a running copy is: collected from its tasks, summed up, and shown."""
