"""Pause mirrors, resume them, set their rate: the DAG `kafka_pace` as the package ships it."""

from airflow_mirror.example_dags.kafka_pace import dag

__all__ = ["dag"]
