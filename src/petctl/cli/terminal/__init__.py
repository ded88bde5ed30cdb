"""What people read, and how it gets to the terminal.

follow.py         a running job, live, and several blocking readers as one
ending.py         how a job ended and what to type next
status_view.py, table.py, text.py    one job's page, tables, words
"""
