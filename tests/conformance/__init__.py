"""What every cluster backend must do, whatever it is made of: the cases behind `petctl.clusters.base.Cluster`.

    backend.py      Backend, the harness that says how to reach one; debug.py, local.py, kubernetes.py: those of petctl
    worker.py       what the jobs run
    test_*.py       the cases, by theme

A backend of your own:  python -m pytest tests/conformance --backends your.module:YourBackend
A case is skipped only where the harness lacks a capability, and says which, and why.
"""
