"""A small client for the Kubernetes API: standard library only, imported as it is used.

    kubeconfig.py         which server, which namespace, and who one is: from files or a pod's service account
    kubeconfig_entries.py ... their entries and fields; users.py: ... their users
    credentials.py        tokens and certificates, renewed when they have run out; credential_plugin.py: by a program
    api.py                objects, watches, logs, commands and ports: the door to all of this
    requests.py           how a request is made, and when once more; connection.py: TLS and sockets
    execute.py, dial.py   a command in a pod, a socket to a port of one, over websocket.py (RFC 6455)
    failures.py           what the server's refusals mean, one class for each thing that a caller can act on
    objects.py            what objects tell of themselves: times, pods, machines
    pod_logs.py           what a container prints in pods

`Api(find_access(settings))` is how it begins. Nothing here knows jobs.
"""
