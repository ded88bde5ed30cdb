"""Which verbs there are, and the first page of help. Imports nothing: every start of petctl reads this file."""

GROUPS = {
    "Start": {
        "run": "Start a job, follow it to its end, exit with its exit code",
        "submit": "Start a job and return at once",
        "resubmit": "Run a job again, with its own code or today's",
        "sweep": "Run a job over many points of its parameters",
        "render": "Show what a job would start",
        "import": "Convert jobs written for the old torchelastic operator, or as pods",
    },
    "Watch": {
        "list": "List jobs",
        "status": "Show one job: state, nodes, rounds, root cause",
        "logs": "Show or follow the workers' output",
        "diagnose": "Find the cause of a failure, and what to do",
        "wait": "Wait for jobs, exit with their exit code",
    },
    "Steer": {
        "scale": "Change the number of nodes of a running job",
        "cancel": "Stop jobs",
        "rm": "Remove finished jobs and their files",
        "exec": "Run a command on a node of a job",
        "forward": "Forward a local port to a node",
        "token": "Write the join file for another machine",
    },
    "Data": {
        "outputs": "List, fetch and link a job's outputs",
        "data": "Copy, list and remove files in object stores: s3://, az://, gs://",
    },
    "Set up": {
        "cluster": "Create, resize and delete clusters on this machine",
        "secret": "Store secrets for jobs",
        "volume": "Print the volume objects for a shared file system",
        "operator": "Install the operator for ElasticJobs on Kubernetes",
        "compat": "Install command lines of other systems over petctl: act, az",
        "completion": "Print the shell's completion script",
        "help": "Show a page of the documentation, or a command's options",
    },
}

MODULES = {  # of verbs that are not about a job: those are in cli/jobs; a kind's own: `petctl.kinds`
    "cluster": "petctl.cli.clusters.cluster",
    "compat": "petctl.compat.install",
    "completion": "petctl.cli.completion",
    "data": "petctl.cli.data.data",
    "help": "petctl.cli.pages",
    "outputs": "petctl.cli.data.outputs",
    "secret": "petctl.cli.clusters.secret",
    "sweep": "petctl.cli.sweeps.sweep",
    "token": "petctl.cli.clusters.token",
}
VERBS = {name: summary for verbs in GROUPS.values() for name, summary in verbs.items()}


def overview() -> str:
    """The first page of help, as plain text."""
    lines = [
        "Usage: petctl [--help] [--version] [-v] COMMAND ...",
        "",
        "  Portable elastic training: any training command, on any number of machines,",
        "  kept training while machines come and go.",
    ]
    for title, verbs in GROUPS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:<12}{summary}" for name, summary in verbs.items()]
    lines += [
        "",
        "Examples:",
        "  petctl run train.py --lr 0.1                 one worker, here",
        "  petctl run -n 1:3 --procs 2 train.py         one to three nodes, two workers",
        "  petctl run job.yaml                          a job file",
        "  petctl logs -f 3f9k                          a unique end of the id is enough",
        "",
        "'petctl COMMAND --help' shows its options, 'petctl help' the documentation.",
        "'petctl -v COMMAND' logs what petctl does on stderr.",
    ]
    return "\n".join(lines)
