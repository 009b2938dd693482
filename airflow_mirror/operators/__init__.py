"""Airflow operators. Each is thin and makes one call into the core."""
