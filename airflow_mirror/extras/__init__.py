"""What only some migrations need: readiness, drills, taking over another tool's target, splitting a mirror.

The core knows nothing of it.
"""
