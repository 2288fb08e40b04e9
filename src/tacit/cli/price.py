"""`tacit price`: what a plan guarantees and costs, and whether it is feasible, before it runs."""

import math
from typing import Annotated, Any

import typer

from tacit.cli.common import Epsilon, papers_part, print_json, with_settings

ORDER = 30  # in `tacit --help`


def command(
    plan: Annotated[str | None, typer.Argument(help="A built-in plan, or a TOML file.")] = None,
    users: Annotated[int, typer.Option(min=1, help="The number of devices.")] = 1000,
    items: Annotated[int, typer.Option(min=1, help="The number of items.")] = 1000,
    events: Annotated[int, typer.Option(min=1, help="The number of events in a typical history.")] = 50,
    epsilon: Epsilon = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, such as privacy.epsilon=4; may be repeated.")
    ] = None,
    papers: Annotated[bool, typer.Option(help="The settings of five papers: ε as claimed and as accounted.")] = False,
    as_card: Annotated[bool, typer.Option("--card", help="A page for a public registry, in Markdown.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Show what a plan guarantees, reveals and costs, and whether it is feasible, without running it."""
    if papers:
        _papers(as_json)
        return
    if plan is None:
        raise typer.BadParameter("Name a plan to price, or use --papers.")
    from tacit.core.catalog import Catalog, Field
    from tacit.device.method import person_fields
    from tacit.lab.analysis.feasibility import assess_priced_plan
    from tacit.lab.plans.loader import complete, load_plan
    from tacit.privacy.card import card, to_markdown
    from tacit.privacy.price import price

    chosen = complete(with_settings(load_plan(plan), setting or [], epsilon))
    cost = price(chosen, users)
    if as_card and not as_json:
        print(to_markdown(card(cost)))
        return
    named = {field.name for stage in chosen.stages for field in person_fields(stage)}
    catalog = Catalog(items, person_fields=tuple(Field(name, "numeric") for name in sorted(named)))
    views = assess_priced_plan(chosen, cost, catalog, events)
    if as_json:
        stages = [{**stage.to_dict(), "outlook": view.to_dict()} for stage, view in zip(cost.stages, views)]
        print_json({**card(cost), "items": items, "events": events, "stages": stages})
        return
    _print(chosen, cost, views)


def _print(plan: Any, cost: Any, views: tuple) -> None:
    from tacit.privacy.card import sentence

    print(f"{plan.name} for {cost.devices:,} devices: {cost.whole}\n{sentence(cost.whole)}")
    for claim in cost.beside:
        print(f"beside it: {claim}")
    for number, (stage, priced, view) in enumerate(zip(plan.stages, cost.stages, views), 1):
        how = "raw data" if priced.raw else f"{stage.privacy['mechanism']}, {stage.rounds} rounds"
        print(f"\nstage {number}: {stage.method}, {how}")
        for claim in priced.claims:
            print(f"  {claim}")
        for word in priced.visible:
            print(f"  visible: {word}")
        if priced.mechanism is not None:
            _print_outlook(priced, view)


def _print_outlook(priced: Any, view: Any) -> None:
    noise = ", ".join(
        f"{name.replace('_', ' ')} {_short(value)}" for name, value in priced.mechanism.describe().items()
    )
    if noise:
        print(f"  noise: {noise}")
    print(
        f"  a device: {priced.messages} message(s) of {view.bytes_up:,.0f} bytes up, {view.bytes_down:,.0f} down; "
        f"{view.memory:,} bytes of memory and {view.operations:,.0f} operations a round"
    )
    if not math.isinf(view.signal_to_noise):
        print(
            f"  outlook: {view.verdict}; signal to noise {view.signal_to_noise:.3g} a number over the run, at best; "
            f"{view.numbers:,} numbers, about {view.devices_needed:,.0f} devices make it workable"
        )
    for way in view.advice:
        print(f"    helps: {way}")


def _short(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _papers(as_json: bool) -> None:
    prices = papers_part("prices")
    if as_json:
        print_json({"rows": prices.rows(), "privrec_tables": prices.privrec_tables()})
    else:
        print(prices.to_markdown())
