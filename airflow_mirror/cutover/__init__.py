"""Fence, prove, drain, verify, commit groups, open the target; roll back on any failure."""
