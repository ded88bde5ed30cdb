"""What the user has configured: ./petctl.yaml over ~/.config/petctl/config.yaml.

settings.py  finds and reads the files; the settings of clusters and stores
keys.py      every key that there may be: a misspelt one is an error
trust.py     whose files are accepted: one's own and root's
"""
