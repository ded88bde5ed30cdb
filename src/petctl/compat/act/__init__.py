"""ACT's model over petctl's jobs: configurations in aux_data/aml, pinned code, runs with ids, folders of blobs.

    config/       aux_data/aml/NAME.yaml as a `Config`, and the storage accounts in it
    compile.py    a `Config` and a command to a `Job`; engines.py: ... where its image cannot be run
    pins.py       the code that the next runs have; build.py: ... after it was built; published.py: ... at code_path
    runs.py       submit, resubmit, abort, run here
    run_logs.py   ... their logs; run_facts.py, overview.py: their states, in ACT's words
    data.py       files between this machine and the folders' blobs; paths.py: which blob a path means
    client.py     all of it for Python programs; package.py: ... for `python -m act.aml_client`
    cli/          the front end: `act` and `a`

Stands above `petctl.jobs`, which knows nothing of it. Only `cli/` knows a command line.
"""
