"""ACT's model over petctl's jobs: configurations in aux_data/aml, pinned code, runs with ids, folders of blobs.

    config.py      aux_data/aml/NAME.yaml as a `Config`: documents.py reads files, keys.py says what each key may hold,
                   build_config.py and zip_rules.py what comes of it
    accounts.py    storage accounts, and how petctl gets to know them
    compile.py   a `Config` and a command to a `Job`; engines.py: ... where its image cannot be run
    pins.py        the code that the next runs have; build.py: ... after it was built; published.py: ... at code_path
    runs.py        submit, resubmit, abort, run here
    run_logs.py     ... their logs; run_facts.py, overview.py: how they stand, in ACT's words
    data.py        files between this machine and the folders' blobs; paths.py: which blob a path means
    client.py      all of it for Python programs

It stands above `petctl.jobs`, which knows nothing of it, and knows no command line: its words are in
`petctl/cli/compat/act`.
"""
