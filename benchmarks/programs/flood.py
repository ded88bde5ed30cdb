"""Writes LINES lines of 80 characters as fast as the pipe or file behind its standard output takes them."""

import os
import sys

lines = int(sys.argv[1])
block = 1000
for start in range(0, lines, block):
    text = "".join(f"line {number:09d} {'.' * 63}\n" for number in range(start, min(start + block, lines)))
    data = text.encode()
    while data:
        data = data[os.write(1, data) :]
