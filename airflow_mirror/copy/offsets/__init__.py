"""Offset maps of mapped topics: the value, its store, and how it is derived from two logs."""
