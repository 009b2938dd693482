"""Topics, settings and consumer groups of the target, and the target's lag."""
