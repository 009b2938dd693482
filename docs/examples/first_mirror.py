"""Copy the topics orders.* to another cluster, at the same offsets, prove that both sides are equal, restore settings."""

from airflow.sdk import DAG

from airflow_mirror.operators.mirror import StartMirrorOperator
from airflow_mirror.operators.plan import PlanMirrorOperator
from airflow_mirror.operators.topics import CreateTargetTopicsOperator, SyncTopicConfigsOperator
from airflow_mirror.operators.verify import VerifyMirrorOperator

ORDERS = {"name": "orders-to-dc2", "source": "kafka_dc1", "target": "kafka_dc2", "topics": ["orders.*"]}

with DAG("first_mirror", schedule=None, default_args={"mirror": ORDERS}):
    plan, create = PlanMirrorOperator(task_id="plan"), CreateTargetTopicsOperator(task_id="create_topics")
    copy, verify = StartMirrorOperator(task_id="copy", mode="bulk"), VerifyMirrorOperator(task_id="verify")
    plan >> create >> copy >> verify >> SyncTopicConfigsOperator(task_id="restore_configs", hold=False)
