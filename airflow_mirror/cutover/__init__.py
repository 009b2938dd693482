"""Fence, prove, drain, verify, commit groups, open the target; and the way back on any failure."""
