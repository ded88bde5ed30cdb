"""Verbs of petctl that are Kubernetes' alone, found by `petctl.kinds`.

operator.py   the operator for ElasticJobs, put into a cluster, taken out of it, or run here
import_.py    jobs that were written for others
volume.py     a shared file system as objects for an administrator (admin_volumes.py)
"""
