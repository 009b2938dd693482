"""Keep a way back after a cutover: the DAG `kafka_reverse_mirror` as the package ships it."""

from airflow_mirror.example_dags.kafka_reverse_mirror import dag

__all__ = ["dag"]
