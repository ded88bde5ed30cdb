"""What both sides have of S3 and Azure, and how a node reaches them without a key. Standard library only.

    files.py           Depot: put, fetch, list and remove files; and the line to the coordinator that it asks
    objects.py         ... in a bucket or container
    directory.py       ... in a directory of this machine; endpoint.py says what both offer
    grants.py          the coordinator's side: what a job may touch, and the keys; it signs and lists

    http_client.py     HTTP to any server, by way of a proxy (`petctl.http_proxy`) if need be; body.py: what is sent
    incoming_file.py   what arrives, verified; checksums.py
    parts.py           large objects by parts; listing.py: pages of names; answers.py: none of these is trusted
    signing.py         signatures: AWS Signature 4, Azure's SharedKey and SAS
    store_errors.py    what stores say when they refuse, as sentences

Which files are moved, and when, is the agent's business. `petctl.storage.stores`, for the submitting side, uses
the second half.
"""
