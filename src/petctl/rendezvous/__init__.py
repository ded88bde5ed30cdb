"""How the nodes of a job agree on who takes part: two pure machines, their messages, and the sockets round them.

    messages.py     what is said: Report (a node, about itself) and Order (the coordinator, to one node)
    machine.py      the coordinator's side, pure; events.py: its vocabulary; decide.py: who takes part and why to wait;
                    roll.py: what it knows of each node
    member.py       a node's side, pure
    frames.py         frames and the mutual proof of the token
    listener.py     the coordinator's door: who may connect, and what becomes of those who may not
    server.py  machine.py over asyncio TCP
    client.py       the agent's and the command line's end of the connection
    join_file.py     what one must have to be let in
    locator.py      where the coordinator is now
    tls.py          the pinned certificate, off loopback

Standard library and Python 3.9 only: all of this travels inside `petctl-agent.pyz`.
"""
