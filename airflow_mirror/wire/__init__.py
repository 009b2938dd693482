"""The Kafka protocol: connections, requests, record batches, checksums. Knows nothing about mirrors."""
