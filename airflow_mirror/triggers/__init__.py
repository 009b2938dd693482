"""Airflow triggers of deferred sensors."""
