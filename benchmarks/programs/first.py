"""Prints before it imports anything: what the user waits for when a job starts."""

print("first user line", flush=True)
