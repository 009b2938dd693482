"""Consumer groups follow: the target has each group's position, seconds after the source."""
