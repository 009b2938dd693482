"""Replicate continuously: the DAGs `kafka_replication`, `..._health` and `..._stop` as the package ships them."""

from airflow_mirror.example_dags.kafka_replication import dag, health, stop

__all__ = ["dag", "health", "stop"]
