"""How a node reaches object stores without a key: standard library only, on URLs that the coordinator signs.

    files.py       Depot: put, fetch, list and remove files; and the line to the coordinator that it asks
    objects.py     ... in a bucket or container
    http_client.py     HTTP to any server: http_connection.py (one connection), http_proxy.py; body.py: what is sent
    incoming_file.py   what arrives, verified; checksums.py
    directory.py   ... in a directory of this machine; endpoint.py says what both offer
    grants.py      the coordinator's side: what a job may touch, and the keys; it signs and lists
    signing.py     the signatures themselves: AWS Signature 4, Azure's SharedKey and SAS
    store_errors.py    what stores say when they refuse, as sentences
    parallel.py    some work for many items, a few at a time

Which files are moved, and when, is the agent's business. `petctl.storage.stores`, for the submitting side, uses
all but the first three and grants.py.
"""
