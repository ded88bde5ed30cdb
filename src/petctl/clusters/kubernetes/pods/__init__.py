"""Pods of a job: their templates, and what became of them.

manifests.py        the objects that a job consists of, as plain data
schema.py           options of jobs for this kind: their names, types and help
pod_options.py      ... as a piece of a pod template; template_merge.py: a user's own piece
pod_termination.py  how one ended; pod_events.py: what the cluster's events tell of them
"""
