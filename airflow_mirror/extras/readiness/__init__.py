"""The plan for the night of a migration: what moves together, what runs out of time, who writes, what lives elsewhere.

It only reads, with the rights of a plan. What those do not show is listed (``unseen``).
"""
