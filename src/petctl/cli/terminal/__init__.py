"""What people read, and how it gets to the terminal.

follow.py         a running job, live; merge_streams.py: several blocking readers as one
screen.py         bytes to stdout and stderr, rank prefixes, the status line; terminal.py: what may reach it
ending.py         how a job ended and what to type next; repeats.py: each traceback once
status_view.py, table.py, text.py    one job's page, tables, words
"""
