"""The page of mirrors in Airflow's UI: data from the ledgers of the targets, for whoever may read a mirror's DAG.

It shows what other modules find out, and finds out nothing itself. Nothing else imports it.
"""
