"""Offset maps of mapped topics: the map itself, its store, and its derivation from both logs."""
