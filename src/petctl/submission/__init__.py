"""Prepares a job for a cluster: its code, folders, stores and grants, and what its nodes must know.

task.py           Job -> what an agent and a coordinator must know of it
code.py           the snapshot that it runs from; code_store.py: ... kept in the job's store
folders.py        mapped folders as the configuration names them; folder_mounts.py: ... as plain data in the record
results.py        where a job's results go
stores.py         the user's object stores, put together; store_grants.py: what nodes may do with them
render.py         what is made for a cluster, as text
"""
