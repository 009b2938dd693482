"""Migrate a Kafka cluster: the DAG `kafka_migration` as the package ships it."""

from airflow_mirror.example_dags.kafka_migration import dag

__all__ = ["dag"]
