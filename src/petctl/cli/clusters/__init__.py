"""Verbs about clusters and what they hold: cluster, operator, secret, token, volume."""
