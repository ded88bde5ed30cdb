"""The process that looks after one local job, and what belongs to it.

supervisor.py         the process: a JobController of this machine; standby.py: takes over when it is killed
local_seat.py         waits for slots, opens the coordinator's port, cleans up at the end
local_nodes.py        how many nodes there should be; node_runner.py: starts, adopts, replaces and releases them;
                      cgroups.py: the most memory and processors of a node
journal.py            writes events, the newest status and the outcome
result_upload.py      sends results that are left here; disk_reserve.py: the last words on a full disk
spawn.py              starts a supervisor; start_environment.py: ... in its submitter's environment
"""
