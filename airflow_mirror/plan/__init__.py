"""Inventory and preflight checks become a Plan: JSON, readable, hashed."""
