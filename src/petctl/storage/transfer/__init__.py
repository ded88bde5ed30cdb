"""Moves files between two places: what there is to do, then all of it in parallel, verified.

plan.py           which files go where, and which are there already, with the reason
transfer.py       does it; large files by parts that survive a kill (core/parts.py)
small_files.py    many small ones from one thread, by pipelining.py
transfer_pool.py  so many threads, and so many bytes in flight
"""
