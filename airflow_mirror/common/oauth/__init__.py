"""Tokens for SASL/OAUTHBEARER, made from a cluster's settings in whatever process needs them.

Rules: a token is in memory alone, and is handed to nobody; a process that needs one makes it. Libraries of a cloud are
imported when its tokens are asked for, and are extras.
"""
