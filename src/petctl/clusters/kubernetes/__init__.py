"""Jobs on Kubernetes, and petctl's own small client for its API: standard library only, imported as it is used.

    kubeconfig.py   which server, which namespace, and who one is: from kubeconfig files or a pod's service account
    kubeconfig_entries.py      ... their entries and fields
    users.py        ... their users
    access.py       what was found there, as plain data
    credentials.py  tokens and certificates, read or made anew when they have run out
    credential_plugin.py       ... those that a program of the user's makes
    api.py          objects, watches, logs, commands and ports: the door to all of this
    requests.py     how a request is made, and when once more
    connection.py   TLS and sockets
    execute.py      a command in a pod, with this terminal
    dial.py         a socket that leads to a port of a pod
    websocket.py    RFC 6455, as far as those two need it
    failures.py     what the API server's refusals mean for people, one class for each thing a caller can act on

`Api(find_access(settings))` is how it begins.
"""
