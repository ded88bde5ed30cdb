"""Restarts without imports: a zygote that has made them already, and what is known of a script's imports.

warm.py          warm starts on this node; zygote.py: the process, as the agent sees it
preloads.py      what a command imports, kept between runs; import_notes.py: where workers note it
prestart.py      workers that are started before their node has a place in a round
startup/         what is slipped into the start of the user's own Python
"""
