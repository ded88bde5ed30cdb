"""The operator: keeps the ElasticJobs of a Kubernetes cluster going. Standard library only, like the client it uses.

    crd.py          the ElasticJob's schema, rules and columns, as data; made with template.py and schema.py
    elasticjob.py   reads one: sizes, policies, the nodes' pod template; what is wrong with it
    record.py       ... -> the job's record, where nobody submitted one
    pods.py         the pods of coordinator and nodes
    actions.py        what can be done about a job, as data
    observation.py         what is known of a job at one moment (pod_state.py: of a pod)
    reconcile.py    decides what to do about one job; pure
    conditions.py   ... what holds of it, and since when
    failure_history.py  ... what is kept of pods that are gone
    completion.py       ... how it ends, and what is removed then
    apply.py       does it: every write to the API server is made there
    cache.py        what the server has of a kind
    queue.py        which jobs to look at, and when
    leader.py       of several operators one acts
    run.py          the process; its words are in options.py
    rights.py       whether it may do its work
    health.py       how it is, for whoever asks over HTTP; metrics.py, how its jobs are
    objects.py      the operator's own objects; installer.py puts them into a cluster and takes them out again

Everything is decided from the objects alone, each time anew: whoever is killed is replaced by one that goes on.
"""
