"""Copy topics by time windows, each once: the DAG `kafka_window_backfill` as the package ships it."""

from airflow_mirror.example_dags.kafka_window_backfill import dag

__all__ = ["dag"]
