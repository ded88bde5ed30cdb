"""Checkpoints of a State on disk.

checkpoints.py  when one is due, who writes it, and what a cold start goes on from
saved.py        whole or not at all; how the newest is found. sharded.py: of parts that no rank has whole
pickles.py      pickles that may be read without trusting whoever wrote them
"""
