"""Airflow connections as clusters, and errors as task outcomes."""
