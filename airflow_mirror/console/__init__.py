"""The command ``airflow-mirror``."""
