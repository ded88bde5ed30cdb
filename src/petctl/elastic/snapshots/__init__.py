"""Copies of a State in memory: what a commit keeps, and what a rollback goes back to.

commits.py      the newest copy that is whole; parts.py: a copy of one part; kinds.py: what a value is to torch
gradients.py    those at a commit; randomness.py: the random numbers at one
"""
