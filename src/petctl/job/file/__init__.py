"""Job files: YAML or JSON to a `Job`, with the place of every mistake, and back.

read.py       a file or a mapping -> Job; write.py: Job -> mapping or YAML
document.py   a tree of texts with the place of each, by yaml_text.py or json_text.py
fill.py       ${NAME} filled with the values of --set
"""
