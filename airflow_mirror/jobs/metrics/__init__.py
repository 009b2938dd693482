"""A running copy's figures for Prometheus: measured from its progress table when they are asked for, never stored."""
