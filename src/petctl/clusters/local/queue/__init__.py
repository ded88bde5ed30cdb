"""Who gets slots, and when.

queue.py         looks at the queue, which brings it forward; scheduler.py: whose turn it is, pure
slots.py         claims on slots, as a SQLite file; queue_claims.py: what the job directories say about them
node_quota.py    how many nodes a job should have now
"""
