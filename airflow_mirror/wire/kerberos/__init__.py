"""Logins by Kerberos: who we are, the tickets that prove it, and the messages of SASL/GSSAPI (RFC 4752)."""
