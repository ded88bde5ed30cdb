"""What people read, and how it gets to the terminal.

follow.py         a running job, live, and several blocking readers as one
screen.py         bytes to stdout and stderr, rank prefixes, each traceback once, the status line
terminal.py       what may reach a terminal
ending.py         how a job ended and what to type next
status_view.py, table.py, text.py    one job's page, tables, words
"""
