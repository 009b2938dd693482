"""Promote the target of a mirror whose source is gone: the DAG `kafka_failover` as the package ships it."""

from airflow_mirror.example_dags.kafka_failover import dag

__all__ = ["dag"]
