"""Airflow triggers: what a deferred sensor awaits."""
