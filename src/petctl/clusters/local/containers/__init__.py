"""Nodes in containers on this machine, by its engine (`petctl.machine.engines`).

node_containers.py  the words that start a node, entering one, removing what is left; images.py: getting an image
"""
