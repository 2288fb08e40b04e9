"""`tacit audit`: run a plan with canaries and test its privacy claim."""

from typing import Annotated, Any

import typer

from tacit.cli.common import print_json, with_settings

ORDER = 40  # in `tacit --help`


def command(
    plan: Annotated[str, typer.Argument(help="A built-in plan, or a TOML file.")],
    users: Annotated[int, typer.Option(min=2, help="The number of synthetic users, besides the canaries.")] = 60,
    canaries: Annotated[int, typer.Option(min=2, help="The maximum number of canaries in a run.")] = 1000,
    seeds: Annotated[int, typer.Option(min=1, help="The number of runs, whose canaries are combined.")] = 1,
    confidence: Annotated[float, typer.Option(help="The probability that a true claim is not refuted.")] = 0.99,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, such as privacy.epsilon=4; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Try to refute a plan's claim with canaries: PASS, or FAIL and exit code 1."""
    from tacit.lab.audits.claim_audit import audit
    from tacit.lab.plans.loader import load_plan

    chosen = with_settings(load_plan(plan), setting or [])
    found = audit(chosen, users=users, canaries=canaries, seeds=range(seeds), confidence=confidence)
    if as_json:
        print_json(found.to_dict())
    else:
        _print(found)
    if not found.passed:
        raise typer.Exit(1)


def _print(found: Any) -> None:
    seen, runs = found.evidence, f"{found.seeds} run{'s' * (found.seeds > 1)}"
    print(f"{found.plan}: {found.claim}")
    print(
        f"attacker: {seen.right:,} of {seen.canaries:,} canaries guessed right in {runs}, {seen.accuracy:.1%}, where the claim "
        f"allows {found.most:.2%}; AUC {seen.auc:.3f}; {seen.tpr:.1%} found at 1 % false alarms"
    )
    curve = (
        "" if seen.curve is None else f"; at least {seen.curve:.2f} if the canaries' noise is normal and independent"
    )
    print(f"proved, with {found.confidence:.4g} confidence: ε is at least {seen.proved:.2f}{curve}")
    print(f"{found.verdict}: {_meaning(found)}")


def _meaning(found: Any) -> str:
    epsilon = f"{found.claim.epsilon:.4g}"
    if found.passed:
        return f"nothing here refutes ε = {epsilon}; an attack that fails proves nothing, the accounting does."
    return f"ε = {epsilon} is refuted; the running code is not what the accounting assumes."
