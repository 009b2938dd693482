"""Inventory, preflight checks and estimate of a mirror: read both clusters, decide, write nothing but the plan."""

from airflow_mirror.plan.build import build
from airflow_mirror.plan.findings import Finding
from airflow_mirror.plan.model import Plan, TopicPlan
from airflow_mirror.plan.selection import missing_topics
from airflow_mirror.plan.store import PlanDirectory, require_plan_of

__all__ = ["Finding", "Plan", "PlanDirectory", "TopicPlan", "build", "missing_topics", "require_plan_of"]
