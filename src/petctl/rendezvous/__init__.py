"""How the nodes of a job agree on who takes part: two pure machines, and their messages over TCP.

    core/   the coordinator's side and a node's side; no sockets, clocks, threads or chance
    net/    the same over TCP: frames, the proof of the token, the join file, control calls

Standard library and Python 3.9 only: all of this travels inside `petctl-agent.pyz`.
"""
