"""An Airflow provider that moves and protects Kafka clusters.

Nothing is imported here: Spark executors that have no Airflow import this package.
"""

__all__ = ["__version__"]

__version__ = "0.2.0"
