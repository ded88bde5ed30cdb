"""Nodes in containers on this machine.

engines.py          podman or docker; images.py: getting an image
node_containers.py  the words that start a node, entering one, removing what is left
"""
