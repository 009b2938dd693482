"""DAGs that are ready to use: import one in a file of your DAG folder, or copy it and make it yours.

.. code-block:: python

    # Airflow only looks into files that hold the words "airflow" and "dag".
    from airflow_mirror.example_dags.kafka_migration import dag
"""
