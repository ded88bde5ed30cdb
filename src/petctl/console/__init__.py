"""What every command has in common, also those that a kind of cluster brings.

commands.py   pieces of click commands: -o, examples, verbs under a verb
screen.py     bytes to stdout and stderr, rank prefixes, each traceback once, the status line
terminal.py   what may reach a terminal
"""
