"""A cluster from outside: its connection settings and an admin facade over confluent-kafka."""
