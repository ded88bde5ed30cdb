"""The command line: one small file per verb, each imported only when its verb is typed.

    main.py         the entry: help and version at once, otherwise the click group
    verbs.py        which verbs there are; imports nothing, because every start of petctl reads it
    group.py        finds a verb's file by its name, and the nearest verb for a mistyped one
    failures.py     every error -> a sentence and an exit code
    stdout_errors.py    ... where the output itself cannot be written
    options.py      options and arguments that several verbs share
    job_options.py  the words of run, submit and render -> Job
    follow.py       a running job -> the terminal; Ctrl-C
    merge_streams.py       several blocking readers -> batches in one thread
    screen.py       bytes to stdout and stderr, rank prefixes, the status line
    ending.py       how a job ended, why, and what to type next
    status_view.py, table.py, text.py   what people read
    compat/         command lines of other systems, over the same jobs: batchai, az

Nothing in here decides anything about a job; that is `petctl.jobs`.
"""
