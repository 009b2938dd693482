"""Run a file of MirrorMaker 2: the DAGs `kafka_mirrormaker` and `kafka_mirrormaker_stop` as the package ships them."""

from airflow_mirror.example_dags.kafka_mirrormaker import dag, stop

__all__ = ["dag", "stop"]
