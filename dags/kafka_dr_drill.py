"""Measure a failover, on a topic of the drill's own: the DAG `kafka_dr_drill` as the package ships it."""

from airflow_mirror.example_dags.kafka_dr_drill import dag

__all__ = ["dag"]
