"""DAGs whose readers may see the mirrors of the tests, and one that has none."""

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from airflow_mirror.hooks.home import mirror_home
from airflow_mirror.hooks.kafka import admins_of
from airflow_mirror.mirror import Mirror
from airflow_mirror.operators.links import ReportLink, show_links
from airflow_mirror.operators.refusals import Refusals
from airflow_mirror.plan.findings import BLOCK, Finding
from airflow_mirror.plan.refused import PLANNING


class Reports(BaseOperator):
    """Leaves a report, as a cutover does."""

    operator_extra_links = (ReportLink(),)

    def execute(self, context: Context) -> None:
        self.shown_links: dict[str, str] = {}
        directory = mirror_home("orders") / "runs" / "by-task"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "report.html").write_text("<h1>The night is over</h1><script>document.title = 'ran'</script>")
        show_links(self, context, directory)


class Refuses(BaseOperator):
    """Is refused, as a first plan is that a check blocks: no ledger knows its mirror."""

    def execute(self, context: Context) -> None:
        mirror = Mirror(name="fresh", source="dc1", target="dc2", topics=["fresh"])
        found = Finding(BLOCK, "topic_size", "topic 'fresh'", "<b>too large</b>", "Raise message.max.bytes.")
        with admins_of(mirror) as (_, target):
            Refusals(self, context, mirror, target).keep(PLANNING, [found])
        raise AirflowFailException("blocked")


with DAG("night_of_orders", schedule=None, tags=["kafka"]):
    EmptyOperator(task_id="plan") >> Reports(task_id="cutover")

for acts in ("kafka_lift_fence", "kafka_pace", "kafka_failback"):  # what becomes of their runs others test
    with DAG(acts, schedule=None, is_paused_upon_creation=acts == "kafka_lift_fence"):
        EmptyOperator(task_id="nothing")

with DAG("night_of_bigmove", schedule=None):
    ApprovalOperator(task_id="approve_cutover", subject="Cut over bigmove?", defaults="Reject")

with DAG("first_night", schedule=None):
    Refuses(task_id="plan")

with DAG("something_else", schedule=None):
    EmptyOperator(task_id="nothing")
