"""Sweeps: one job, many points of its parameters. Points are submitted as ordinary jobs, a bounded number at a time.

    space.py     parameters -> points: grid, random, from a file. Pure
    pointfile.py ... csv, json, jsonl, yaml
    record.py    $PETCTL_HOME/sweeps/NAME/: what was asked for, written once, and events, appended
    history.py   events -> where each point stands. Pure
    measure.py   what a job reports, or prints, as numbers; conditions on them
    decide.py    history, limits -> submit these, stop those, or it is over. Pure
    begin.py     a new sweep: its first job is planned, its code pinned, its directory made
    looking.py   one look at the jobs that are under way -> events
    drive.py     the loop: look, decide, act; killed at any moment, the next one goes on
    results.py   rows for tables and files
    axes.py      values -> places on an axis, with labels. Pure
    parallel.py  points as lines through all axes, and which stand out. Pure
    plot.py      all that as a picture (SVG)
    textplot.py  the lines for a terminal

A sweep needs no daemon: whoever drives it holds its lock, and jobs go on without a driver. What a job is, and where it
runs, is `petctl.jobs`' and `petctl.clusters`' to know; this package knows no command line.
"""
