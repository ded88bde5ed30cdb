"""Verbs about jobs, one file each: the file has the verb's name and holds the click command `command`."""
