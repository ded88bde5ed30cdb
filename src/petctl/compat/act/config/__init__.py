"""ACT's configuration, aux_data/aml/NAME.yaml, as a `Config`.

config.py        the value; keys.py: every key that there may be
documents.py     YAML and JSON in, every problem with its place
build_config.py  from the words of a configuration to clusters, places and images; zip_rules.py: to ignore rules
accounts.py      storage accounts, and how petctl gets to know them
"""
