"""The operator: keeps the ElasticJobs of a Kubernetes cluster going. Standard library only, like the client it uses.

    elasticjob.py       reads one: sizes, policies, the nodes' pod template; what is wrong with it
    record.py           ... -> the job's record, where none was submitted
    pods.py             the pods of coordinator and nodes
    actions.py          what can be done about a job, as data
    observation.py      what is known of a job at one moment; pod_state.py: of a pod
    reconcile.py        decides what to do about one job; pure
    conditions.py       ... what holds of it, and since when
    failure_history.py  ... what is kept of pods that are gone
    completion.py       ... how it ends, and what is removed then
    apply.py            does it: every write to the API server is made there
    run.py              the process: caches -> queue -> decide -> apply
    runtime/            what any operator needs: caches, a queue, a leader, health, metrics
    install/            the operator's own objects, and the ElasticJob's schema

Everything is decided from the objects alone, each time again: an operator that was killed is replaced by one that
continues from there.
"""
