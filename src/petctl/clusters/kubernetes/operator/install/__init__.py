"""The operator's own objects.

crd.py        the ElasticJob's schema, rules and columns, made with template.py and schema.py
objects.py    what `petctl operator install` applies and the Helm chart holds
installer.py  puts them into a cluster, and takes them out again
"""
