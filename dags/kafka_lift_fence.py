"""Lift the fences of a mirror: the DAG `kafka_lift_fence` as the package ships it."""

from airflow_mirror.example_dags.kafka_lift_fence import dag

__all__ = ["dag"]
