"""What this machine has, for clusters that use it and front ends that ask: nothing of jobs is known here.

gpus.py       its GPUs
engines.py    its container engine: podman or docker
"""
