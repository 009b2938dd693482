"""What follows the data: topics, configs, consumer group offsets."""
