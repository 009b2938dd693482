"""Whether the schema ids that records carry mean the same on the target as on the source."""
