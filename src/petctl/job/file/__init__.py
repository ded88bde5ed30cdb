"""Job files: YAML or JSON to a `Job`, with the place of every mistake, and back.

read.py                      a file or a mapping -> Job; write.py: Job -> mapping or YAML
documents.py                 any file of petctl's users -> its tree, with places; front ends read theirs by it
yaml_text.py, json_text.py   a file as a tree of texts with the place of each (`petctl.job.spec.document`)
fill.py                      ${NAME} filled with the values of --set
"""
