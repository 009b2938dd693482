"""DAGs whose readers may see the mirrors of the tests, and one that has none."""

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, BaseOperator, Context

from airflow_mirror.hooks.home import mirror_home
from airflow_mirror.operators.links import ReportLink, show_links


class Reports(BaseOperator):
    """Leaves a report, as a cutover does."""

    operator_extra_links = (ReportLink(),)

    def execute(self, context: Context) -> None:
        self.shown_links: dict[str, str] = {}
        directory = mirror_home("orders") / "runs" / "by-task"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "report.html").write_text("<h1>The night is over</h1><script>document.title = 'ran'</script>")
        show_links(self, context, directory)


with DAG("night_of_orders", schedule=None, tags=["kafka"]):
    EmptyOperator(task_id="plan") >> Reports(task_id="cutover")

for acts in ("kafka_lift_fence", "kafka_pace", "kafka_failback"):  # what becomes of their runs others test
    with DAG(acts, schedule=None, is_paused_upon_creation=acts == "kafka_lift_fence"):
        EmptyOperator(task_id="nothing")

with DAG("night_of_bigmove", schedule=None):
    ApprovalOperator(task_id="approve_cutover", subject="Cut over bigmove?", defaults="Reject")

with DAG("something_else", schedule=None):
    EmptyOperator(task_id="nothing")
