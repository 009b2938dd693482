"""Let schemas follow into another registry: the DAG `kafka_schemas` as the package ships it."""

from airflow_mirror.example_dags.kafka_schemas import dag

__all__ = ["dag"]
