"""Inventory, preflight checks and estimate of a mirror: read both clusters, decide, write nothing but the plan."""

from airflow_mirror.plan.build import build
from airflow_mirror.plan.model import Finding, Plan, TopicPlan

__all__ = ["Finding", "Plan", "TopicPlan", "build"]
