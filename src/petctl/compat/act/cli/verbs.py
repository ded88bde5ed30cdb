"""Which verbs `act` has, and the first page of its help. Imports nothing: every start reads this file.

A verb is the name of a file of this package and of the click command in it.
"""

GROUPS = {
    "Run": {
        "submit, s": ("start:submit", "Run any command on a cluster, with the pinned code"),
        "local": ("start:local", "Run it here, in one process, and follow it"),
        "resubmit": ("start:resubmit", "Abort runs, and run the same again"),
        "abort, a": ("control:abort", "End runs"),
        "ssh": ("control:ssh", "A shell, or a command, on a node of a run"),
    },
    "Code": {
        "init, initi": ("code:init", "Pin the code as it is now: runs take the last one pinned"),
        "initc, initic": ("code:initc", "... and build it first, with compile.aml.sh"),
    },
    "Watch": {
        "query, q": ("query:query", "Fetch runs' logs, show their end and what is known"),
        "failed, f, qf": ("query:failed", "List the runs that failed"),
        "qq": ("query:queued", "List the runs that wait"),
        "qr": ("query:running", "List the runs that run"),
        "blame": ("query:blame", "The five that have run longest"),
        "summary": ("query:summary", "What the cluster has, what is free, who runs and waits"),
        "parse": ("query:parse", "Say why a run failed, from its logs"),
    },
    "Data": {
        "ls": ("data:ls", "List what begins with a path: data/voc20"),
        "upload, u": ("data:upload", "Copy a file or folder to the blob; -f: from another's"),
        "download, d": ("data:download", "Copy a file or folder from the blob"),
        "rm": ("data:rm", "Remove exactly this file or folder from the blob"),
        "url": ("data:url", "Print a link to a file that works for 30 days"),
    },
    "Set up": {"completion": ("completion:completion", "Print the shell's completion script")},
}
WITHOUT_WORDS = {"s": "start:s"}  # with words it submits, alone it is the summary


def commands() -> dict[str, tuple[str, str]]:
    """Every name of every verb, with its file, as `VerbGroup` takes it."""
    found = {
        name: (f"act.cli.{WITHOUT_WORDS.get(name, file)}", summary)
        for verbs in GROUPS.values()
        for names, (file, summary) in verbs.items()
        for name in names.split(", ")
    }
    found["completion"] = ("batchai.cli.completion:completion", found["completion"][1])  # the one of all front ends
    return found


def overview(program: str) -> str:
    """The first page of help, as plain text."""
    lines = [
        f"Usage: {program} [FLAGS] COMMAND [FLAGS] ...",
        "",
        "  Any command to a cluster: AML Command Transfer (ACT) over petctl. It reads",
        "  aux_data/aml/aml.yaml of the current directory, or NAME.yaml with -c NAME.",
    ]
    for title, verbs in GROUPS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {names:<16}{summary}" for names, (_, summary) in verbs.items()]
    lines += [
        "",
        "Flags go before the verb or right after it; what comes after a command's first",
        "word is the command's own:",
        "  -n N            so many GPUs             -c NAME   another YAML, or petctl's cluster",
        "  -single         one process per node     -f NAME   the source of upload",
        "  -hold           keep the node            -rt NAME  where resubmit goes",
        "",
        "Examples:",
        f"  {program} init                                     the code, once and after changes",
        f"  {program} -n 8 submit python train.py --data voc20",
        f"  {program} q 60ce2fc7                               a unique end of the id is enough",
        f"  {program} -c eu -f we3v32 u data/voc20             from one cluster's blob to another's",
        "",
        f"'{program} COMMAND --help' shows its options; docs/act.md lists what differs from ACT.",
    ]
    return "\n".join(lines)
