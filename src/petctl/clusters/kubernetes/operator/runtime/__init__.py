"""What any operator needs: caches, a queue, one leader, and to be looked at. It knows no ElasticJob.

cache.py    what the server has of a kind: listed, watched, listed again
queue.py    which keys want a look, and when; leader.py: of several operators one acts; rights.py: whether it may
health.py   how it is, over HTTP; metrics.py: how its jobs are; options.py: its command line
"""
