"""A job's status and events: made from what the coordinator knows, kept, and told.

records.py        the history that follows from events, the fields of a status
journal.py        the newest status, kept up to date; container.py: ... in a pod, for clients that watch
event_printer.py  events on a stdout that may be slow
"""
