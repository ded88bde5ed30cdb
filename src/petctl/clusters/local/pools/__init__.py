"""Named clusters on this machine: made, resized, deleted by `petctl cluster`.

pool.py          one of them, as a resource; description.py: what a user may say of it; spec.py: what is kept
model.py         what its nodes should become, pure; nodes.py: the table of them
setup.py         prepares one node; mounts.py: what all its jobs find under one root
"""
