"""The node itself: its processes, its connection to the coordinator, its rounds.

cli.py, options.py   the command line; guardian.py: the top process, which outlives the agent
agent.py             drives the pure `Member`, and carries out what it decides
connection.py        keeps the node connected to whichever coordinator there is
rounds.py            its part in the rounds; draining.py: ... after the last of them
node_assets.py       what it needs beside its workers; setup_step.py: ... made ready
host.py, clock.py, native.py, runtime_dir.py    the machine that it runs on
"""
