"""`tacit protocols`: the evaluation protocols."""

ORDER = 60  # in `tacit --help`


def command() -> None:
    """List the evaluation protocols: what is held out, candidates, metrics, and how repeats are treated."""
    from tacit.lab.evaluation.protocols import PROTOCOLS

    for protocol in PROTOCOLS.values():
        lines = (protocol.about, ", ".join(protocol.metrics), protocol.repeats)
        print(f"{protocol.name:<14} {lines[0]}", *(f"{'':<14} {line}" for line in lines[1:]), sep="\n")
