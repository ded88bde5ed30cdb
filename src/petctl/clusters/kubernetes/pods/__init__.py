"""Pods of a job: their templates, and what became of them.

manifests.py        the objects that a job consists of, as plain data
pod_options.py      the words of `kubernetes:` as a piece of a pod template; template_merge.py: a user's own piece
unschedulable.py    why pods do not run; pod_termination.py: how one ended; node_losses.py: ... in the job's events
"""
