"""The pure machines: no sockets, clocks, threads or chance. `(state, event, now) -> (state, effects)`.

messages.py     what is said: Report (a node, about itself) and Order (the coordinator, to one node)
config.py       the bounds of a job's rounds
transitions.py  the coordinator's phases: the table of events and handlers that runs it
machine.py      the coordinator's decisions; events.py: what it is told and wants done; facts.py: what it knows
decide.py       who takes part, and why to wait; budget.py: what a failure costs; blame.py: which is the root cause
roll.py         what is known of each node; stall.py: whether a round still makes steps
deadlines.py    by when many nodes must be heard of; heartbeat.py: how often
member.py       a node's side; member_events.py: what it is told and wants done
"""
