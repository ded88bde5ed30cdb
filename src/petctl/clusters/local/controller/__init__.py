"""The process that looks after one local job, and what belongs to it.

supervisor.py         coordinates the job and keeps its nodes; standby.py: takes over when it is killed
node_runner.py        starts, adopts, replaces and releases nodes; last_nodes.py: ... at the end
endpoint.py           opens the coordinator's port; journal.py: writes events and the newest status
result_upload.py      sends results that are left here; disk_reserve.py: the last words on a full disk
spawn.py              starts a supervisor; start_environment.py: ... in its submitter's environment
"""
