"""Object stores: S3, Azure, and directories that stand for one.

core/      signed URLs and plain HTTP, standard library only: what nodes and coordinators use
stores/    one bucket, container or folder, as the submitting side sees it: list, read, write, remove
transfer/  many files from one place to another: in parallel, verified, resumable after kill -9
"""
