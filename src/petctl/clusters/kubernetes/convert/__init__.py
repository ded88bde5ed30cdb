"""Jobs that were written for others, as jobs of petctl's: ElasticJobs of the old operator, pods, PyTorch launchers.

convert.py        finds them among the objects of a file; converted.py: what becomes of each
launcher_args.py  the words of a PyTorch launcher; validation.py: whether an object has the shape that it should
"""
