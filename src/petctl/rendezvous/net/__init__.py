"""The machines over TCP.

server.py       the coordinator's machine over asyncio; calls.py: the control calls that it takes
listener.py     the door: who may connect, and what becomes of those who may not
client.py       the agent's and the command line's end
frames.py       frames, and the mutual proof of the token; tls.py: the pinned certificate, off loopback
join_file.py    what one must have to be let in; locator.py: where the coordinator is now
"""
