"""Run a file of MirrorMaker 2: two DAGs that keep a tail running for each of its flows, and stop them.

* `kafka_mirrormaker` reads the file and has one tail run for each enabled flow. Turned on, it looks every five minutes: a
  tail that lives is left alone, and a flow that fails keeps no other one from running. With `attached` its run lasts as
  long as the tails.
* `kafka_mirrormaker_stop` ends the tails. Turn the first one off before, or they are started again.

The file's clusters are connections: cluster `dc1` is `kafka_dc1`, and `airflow-mirror import-mm2 FILE --out DIR`
makes them. Secrets, and references to them, are not read here.

Scheduled runs take what the DAG's file says:

.. code-block:: python

    from airflow_mirror.example_dags.kafka_mirrormaker import mirrormaker

    dag, stop = mirrormaker("mirrors_of_dc2", ["/etc/kafka/connect-mirror-maker.properties"], clusters=["dc2"])
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, task, task_group

from airflow_mirror.example_dags import tails
from airflow_mirror.example_dags.forms import known_params_only, text
from airflow_mirror.example_dags.tails import EVERY, Callbacks, Field
from airflow_mirror.hooks.outcomes import task_outcome
from airflow_mirror.mirror import Mirror
from airflow_mirror.operators.mirror import StopMirrorOperator

__all__ = ["dag", "mirrormaker", "stop"]

FILES = ("/etc/kafka/connect-mirror-maker.properties",)
FIELDS: dict[str, Field] = {
    "files": (list(FILES), {
        "title": "Files", "type": "array", "items": {"type": "string"}, "minItems": 1,
        "description_md": "The path of a `connect-mirror-maker.properties` on the workers, or those of the three "
        "connectors' files, one a line.",
    }),
    "clusters": ([], {
        "title": "Clusters", "type": ["null", "array"], "items": {"type": "string"},
        "description_md": "Only flows *into* these clusters, by their aliases in the file, one a line; empty: all flows.",
    }),
    **tails.FIELDS,
}  # fmt: skip
OF_FILE = ("files", "clusters", "spark_conn_id")


def mirrormaker(
    dag_id: str = "kafka_mirrormaker",
    files: Sequence[str] = FILES,
    *,
    every: timedelta = EVERY,
    on_failure_callback: Callbacks = None,
    **defaults: Any,
) -> tuple[DAG, DAG]:
    """Return the DAGs that keep the tails of a MirrorMaker 2 file running, and stop them.

    :param dag_id: of the first; the other one has ``_stop`` behind it.
    :param files: paths on the workers: of the driver's file, or of the connectors'.
    :param every: how often it is made sure that the tails run.
    :param on_failure_callback: what Airflow calls when a task has failed for good, such as a notifier.
    :param defaults: of the other fields of the forms; scheduled runs take them.
    :raises TypeError: no form has such a field.
    """
    form = tails.with_defaults(FIELDS, {**defaults, "files": list(files)})

    def dag_of(suffix: str, what: str, *fields: str, **given: Any) -> DAG:
        of_form = {name: form[name] for name in (*OF_FILE, *fields)}
        return tails.dag_of(f"{dag_id}{suffix}", what, of_form, on_failure_callback, doc_md=__doc__, **given)

    timed = {"schedule": every, "is_paused_upon_creation": True}
    start = dag_of("", "Have a tail run for each flow of a MirrorMaker 2 file", "attached", "replace_tail", **timed)
    stop = dag_of("_stop", "Stop the tails of a MirrorMaker 2 file", "grace_s", schedule=None)
    with start:
        _flow.expand(mirror=_read())
    with stop:
        StopMirrorOperator.partial(
            task_id="stop_tail", spark_conn_id=text("spark_conn_id"), grace_s="{{ params.grace_s }}",
            map_index_template="{{ task.mirror.name }}",
        ).expand(mirror=_read())  # fmt: skip
    return start, stop


@task(task_id="read_file", pre_execute=known_params_only)
def _read(params: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the Mirror of each flow; it has no secret.

    :raises AirflowFailException: something of the file can't be kept, or no flow leads into such a cluster.
    """
    with task_outcome():
        return [one.to_dict() for one in Mirror.from_properties(*params["files"], clusters=params["clusters"] or ())]


# A task of Python has what it is given in op_kwargs.
_NAME = "{{ (task.mirror if task.mirror is defined else task.op_kwargs['mirror']).name }}"


@task_group(group_id="flow", default_args={"map_index_template": _NAME})
def _flow(mirror: Any) -> None:
    tails.keep_tail(mirror)


dag, stop = mirrormaker()
