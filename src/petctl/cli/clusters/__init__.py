"""Verbs about clusters and what they hold: cluster, secret, token."""
