"""A job's status and events: made from what the coordinator knows, kept, and told.

records.py        events, the history that follows from them, the fields of a status
status_builder.py one status, from what the machine knows at the moment
journal.py        the newest of these, kept up to date; container.py: ... in a pod, for clients that watch
compact.py        a status as it goes over the wire
event_printer.py  events on a stdout that may be slow
"""
