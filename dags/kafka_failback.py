"""Return to the old source after a cutover: the DAG `kafka_failback` as the package ships it."""

from airflow_mirror.example_dags.kafka_failback import dag

__all__ = ["dag"]
