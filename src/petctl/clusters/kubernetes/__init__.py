"""Jobs on Kubernetes: makes a job's objects, reads what became of them, asks its coordinator.

    backend.py             the Backend over a namespace; names.py: names and labels of objects
    build_record.py        Job -> the record; payload.py: Secrets and ConfigMaps that its pods get
    jobrequest.py          what only Kubernetes knows of a job, in its record
    job_owner.py           the object that owns a job's others: a Job or an ElasticJob; elastic_jobs.py: the latter
    coordinator_client.py  asks a job's coordinator, whichever pod it is just now
    kubernetes_job.py      how a job stands; job_status.py: as its objects alone tell it
    pods/                  templates of pods, and what became of pods
    commands/              verbs that are Kubernetes' alone
    convert/               jobs that were written for other systems
    operator/              the process that reconciles ElasticJobs

The client for the API is `petctl.kube`.
"""
