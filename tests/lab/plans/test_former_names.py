"""Names of plans and methods in earlier versions still load, with one warning."""

import pytest

import tacit
from tacit.core.plan import Plan
from tacit.core.plugins import RenamedWarning
from tacit.device.method import method_class
from tacit.errors import PlanError
from tacit.lab.plans.loader import load_plan, plan_names

FORMER = {
    "fofl-self": "privrec-ids-only",
    "nn-self": "privrec-maml",
    "seqmf-free": "seqmf-no-noise",
    "seqmf-chart": "seqmf-popularity-prior",
    "fpl-s": "fpl-sequential",
    "fcf-own": "fcf-sparse",
    "privrec-cen": "privrec-central",
    "fedseqrec-cen": "fedseqrec-central",
    "fednewsrec-cen": "fednewsrec-central",
    "tastes": "item-covariance",
}


@pytest.mark.parametrize(("former", "current"), FORMER.items())
def test_a_former_plan_name_loads_the_plan_with_one_warning(former, current):
    with pytest.warns(RenamedWarning, match=f"The plan '{former}' is now called '{current}'.") as caught:
        plan = tacit.plan(former)
    assert len(caught) == 1
    assert plan == load_plan(current)
    assert former not in plan_names()


def test_former_names_in_a_file_change_neither_plan_nor_digest():
    text = load_plan("fcf").to_toml()
    renamed = Plan.from_toml(f'former_names = ["other"]\n{text}')
    assert renamed == load_plan("fcf")
    assert renamed.digest == load_plan("fcf").digest
    assert "former_names" not in renamed.to_toml()


def test_a_plan_that_names_a_method_by_its_former_name_loads():
    text = load_plan("dp-privrec").to_toml().replace("item_covariance", "tastes")
    with pytest.warns(RenamedWarning, match="The method 'tastes' is now called 'item_covariance'."):
        found = method_class(Plan.from_toml(text).stages[1].method)
    assert found is method_class("item_covariance")


def test_an_unknown_plan_is_refused_with_the_nearest_name():
    with pytest.raises(PlanError, match="Tacit has no plan 'fcv'; did you mean 'fcf'"):
        load_plan("fcv")
