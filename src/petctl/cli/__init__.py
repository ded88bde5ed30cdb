"""The command line: one small file per verb, each imported only when its verb is typed.

    main.py         the entry: help and version at once, otherwise the click group
    verbs.py        which verbs there are; imports nothing, because every start of petctl reads it
    group.py        finds a verb's file by its name, and the nearest verb for a mistyped one
    failures.py     every error -> a message and an exit code; stdout_errors.py: ... where the output cannot be written
    options.py      arguments that name jobs
    job_options.py  the arguments of run, submit and render -> Job; option_order.py: which options are petctl's;
                    job_file.py: from a job file; kind_options.py: -O, options of a kind of cluster
    completion.py   completion of the shell; pages.py: the documentation, offline
    jobs/ clusters/ data/ sweeps/    the verbs
    terminal/       what people read, and how it gets to the terminal

What any command needs, also one that a kind of cluster brings, is in `petctl.console`. Decides nothing about a job;
that is `petctl.jobs`. Command lines of other systems are in `petctl.compat`.
"""
