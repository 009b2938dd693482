"""Small values and helpers that every package uses; none knows of Kafka's protocol or of a mirror's life."""
