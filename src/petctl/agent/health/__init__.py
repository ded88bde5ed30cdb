"""How the workers are: progress, and why one failed.

progress.py    what they say of their steps; stacks.py: what they are doing when a round stands still
root_cause.py  why one failed, from what it left behind; oom.py: whether the kernel killed it for memory
readiness.py   whether they are in a round, for a kubelet's probe
"""
