"""Airflow connections of type kafka as clusters, and errors as task outcomes."""
