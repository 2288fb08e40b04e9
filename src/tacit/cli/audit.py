"""`tacit audit`: run a plan with canaries and test its privacy claim."""

from typing import Annotated, Any

import typer

from tacit.cli.common import Epsilon, print_json, with_settings

ORDER = 40  # in `tacit --help`


def command(
    plan: Annotated[str, typer.Argument(help="A built-in plan, or a TOML file.")],
    users: Annotated[int, typer.Option(min=2, help="The number of synthetic users, besides the canaries.")] = 60,
    canaries: Annotated[int, typer.Option(min=2, help="The maximum number of canaries in a run.")] = 1000,
    seeds: Annotated[int, typer.Option(min=1, help="The number of runs, whose canaries are combined.")] = 1,
    confidence: Annotated[float, typer.Option(help="The probability that a true claim is not refuted.")] = 0.99,
    epsilon: Epsilon = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, such as privacy.epsilon=4; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Try to refute a plan's claim with canaries: PASS, or FAIL and exit code 1."""
    from tacit.lab.audits.claim_audit import audit
    from tacit.lab.plans.loader import load_plan

    chosen = with_settings(load_plan(plan), setting or [], epsilon)
    found = audit(chosen, users=users, canaries=canaries, seeds=range(seeds), confidence=confidence)
    if as_json:
        print_json(found.to_dict())
    else:
        _print(found)
    if not found.passed:
        raise typer.Exit(1)


def _print(found: Any) -> None:
    runs = f"{found.seeds} run{'s' * (found.seeds > 1)}"
    print(f"{found.plan}: {found.claim}")
    if found.asked is None:
        _print_evidence(found, "attacker", "the canaries' noise is normal and independent", found.tested, runs)
    else:
        normal = found.asked.evidence.curve is not None
        condition = "the noise is normal, and noise and draws are independent" if normal else "draws are independent"
        _print_evidence(found, "attacker who does not see who was drawn", condition, found.tested, runs)
        print(f"without amplification: {found.asked.claim}")
        asking = "server that asks every canary in every round"
        _print_evidence(found, asking, "the noise is normal and independent", found.asked, runs)
    print(f"{found.verdict}: {_meaning(found)}")


def _print_evidence(found: Any, attacker: str, condition: str, tested: Any, runs: str) -> None:
    seen = tested.evidence
    print(
        f"{attacker}: {seen.right:,} of {seen.canaries:,} canaries guessed right in {runs}, {seen.accuracy:.1%}, where the claim "
        f"allows {tested.most:.2%}; AUC {seen.auc:.3f}; {seen.tpr:.1%} found at 1 % false alarms"
    )
    curve = "" if seen.curve is None else f"; at least {seen.curve:.2f} if {condition}"
    print(f"proved, with {found.confidence:.4g} confidence: ε is at least {seen.proved:.2f}{curve}")


def _meaning(found: Any) -> str:
    refuted = [tested.claim for tested in (found.tested, found.asked) if tested is not None and not tested.passed]
    if not refuted:
        return f"nothing here refutes ε = {found.claim.epsilon:.4g}; an attack that fails proves nothing, the accounting does."
    which = " and ".join(f"ε = {claim.epsilon:.4g}" for claim in refuted)
    return (
        f"{which} {'is' if len(refuted) == 1 else 'are'} refuted; the running code is not what the accounting assumes."
    )
