"""Airflow operators: thin, one call into the core each."""
