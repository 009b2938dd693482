"""A whole migration on one machine: two real clusters, real data, a real Airflow, and a referee that is not ours.

``python -m demo`` (``make demo``) runs it. Nothing here imports the wire client, the copy engine or the verifier of
airflow_mirror: what fills the source and what judges the result are confluent-kafka clients only.
"""
