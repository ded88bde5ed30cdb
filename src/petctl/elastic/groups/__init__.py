"""The process groups of a round: joined, cut off, taken down, and the State spread over a new one.

groups.py       the only torch.distributed calls; wrappers.py: DistributedDataParallel, made anew in each round
connections.py  cuts the group's connections while the main thread waits in a collective; gloo.py: wakes it
spread.py       brings every rank to the newest State there is
"""
