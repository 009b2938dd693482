"""A disaster on a topic of its own, measured."""
