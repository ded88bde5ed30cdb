"""The user's own processes on one node: started, watched, stopped so that nothing is left.

workers.py           all of them; spawn.py: how one comes to be; stopping.py: a stop that is under way
environment.py       their environment; snapshot_command.py: what they run where the code is a snapshot
channel.py           the socket on which they talk to the agent
processes.py         who descends from whom; what workers have left running
python_copy.py       an interpreter that runs in any container
"""
