"""The cluster that is this machine: a node is an agent process, a job is a directory with a supervisor.

cluster.py     the Cluster protocol over job directories; runs in the user's command
jobdir.py      the job directory: names, atomic files, locks
processes.py   finding and ending processes that a job left behind
slots.py       how many nodes may run at once, and who is next
secrets.py     the file of secret values
lost.py        recognising and burying a job that nobody looks after any more
supervisor.py  one process per job: waits for slots, then coordinates and keeps the nodes
keeper.py      starts, adopts, replaces and releases a job's nodes
recorder.py    what the supervisor writes down: status.json, events.jsonl
"""
