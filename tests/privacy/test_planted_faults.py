"""Faults planted in the source of everything that keeps a promise, one at a time: the test that is named must notice each.

A fault is a line of a file and what it is replaced by. The package is copied, the line replaced, and the test run on the copy in a
process of its own. A line that is no longer there fails as well, so that no fault is planted in vain.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import tacit

pytestmark = pytest.mark.slow
TESTS = Path(__file__).parents[1]
PACKAGE = Path(tacit.__file__).parent


class Fault(NamedTuple):
    """A file of the package, a line of it, what stands there instead, and the test that notices."""

    file: str
    line: str
    instead: str
    noticed_by: str


GRID, NOISE, ACCEPTS = (
    "core/test_integer_grid.py",
    "privacy/test_noise_grid.py",
    "privacy/test_what_a_server_accepts.py",
)
EVERY, SINGLE, MUTANTS = "privacy/test_every_mechanism.py", "privacy/test_mechanisms.py", "privacy/test_mutants.py"
LAWS, BOUND, BUDGET = "privacy/test_exact_law.py", "privacy/test_adaptive_clip.py", "privacy/test_budget.py"
DRAWS, FORMS, RELATIONS = (
    "privacy/test_sampled_draws.py",
    "privacy/test_nonnegative.py",
    "privacy/test_relations.py",
)
OUTER = "privacy/test_outer_products.py"
NODES, KEYS, DOORS = "deploy/test_node_and_session.py", "deploy/test_randomness.py", "deploy/test_report_checks.py"
FAULTS = [
    # bounds and sums in integers
    Fault(
        "core/integer_grid.py",
        "return small & ((total[0] < high)",
        "return ((total[0] < high)",
        f"{GRID}::test_the_check_of_the_bound_is_exact",
    ),
    Fault(
        "core/integer_grid.py",
        "jnp.where(within(q, grid, part), q, jnp",
        "jnp.where(True, q, jnp",
        f"{GRID}::test_what_rounding_would_push_out_of_the_bound_is_shrunk",
    ),
    Fault(
        "core/integer_grid.py",
        "max(1, (2**31 - 1) // largest)",
        "max(1, 2**33 // largest)",
        f"{GRID}::test_few_small_numbers_are_summed_in_32_bits_and_many_in_64",
    ),
    Fault(
        "core/integer_grid.py",
        "one.high + other.high + (low < one.low)",
        "one.high + other.high",
        f"{GRID}::test_64_bit_numbers_are_those_of_numpy",
    ),
    Fault(
        "core/integer_grid.py",
        "sound = jnp.isfinite(x).all() & (",
        "sound = (",
        f"{GRID}::test_extremes_of_clips_and_inputs",
    ),
    Fault(
        "core/integer_grid.py",
        "(rank < PERSON_STEPS % many)",
        "(rank < many)",
        f"{GRID}::test_a_person_s_shares_add_up_to_one_person_whatever_they_have",
    ),
    Fault(
        "core/integer_grid.py",
        "l2_grid(PERSON_STEPS**2, vector.size)",
        "l2_grid(4 * PERSON_STEPS**2, vector.size)",
        f"{GRID}::test_one_person_s_part_is_within_one_person_and_a_sum_survives_floats",
    ),
    Fault(
        "privacy/mechanisms/_parts/summed.py",
        "jnp.where(_column(sent, part), part, 0)",
        "part",
        f"{EVERY}::test_monoid[gaussian-0]",
    ),
    Fault(
        "privacy/mechanisms/_parts/outer_products.py",
        "jnp.where(fits, q, jnp",
        "jnp.where(True, q, jnp",
        f"{OUTER}::test_whatever_is_computed_outer_products_of_integers_are_sent",
    ),
    Fault(
        "privacy/mechanisms/_parts/outer_products.py",
        "one = pivot > 0 and",
        "one =",
        f"{OUTER}::test_a_server_refuses_what_is_no_outer_product",
    ),
    # noise and grids
    Fault(
        "privacy/mechanisms/_parts/noise_grid.py",
        "math.ceil(bound * Fraction(scale))",
        "math.floor(0.99 * float(bound * Fraction(scale)))",
        f"{NOISE}::test_laplace_grids_cost_less_than_a_hundredth",
    ),
    Fault(
        "privacy/mechanisms/_parts/noise_grid.py",
        "math.floor(table.variance / exact**2)",
        "math.floor(1.01 * float(table.variance / exact**2))",
        f"{NOISE}::test_rounding_costs_less_than_a_hundredth_and_noise_is_never_less",
    ),
    Fault(
        "privacy/mechanisms/_parts/noise_grid.py",
        "gaussian_table_above(noise * steps)",
        "gaussian_table_above(0.9 * noise * steps)",
        f"{LAWS}::test_a_count_in_sixteenths_keeps_the_epsilon_of_its_noise",
    ),
    Fault(
        "privacy/mechanisms/_parts/noise_grid.py",
        "if most >= 2**31:",
        "if most >= 2**32:",
        f"{NOISE}::test_overflow_is_refused_at_the_very_number",
    ),
    Fault(
        "privacy/mechanisms/_parts/noise_grid.py",
        "if not CLIPS[0] <= clip <= CLIPS[1]:",
        "if not 0 < clip <= CLIPS[1]:",
        f"{NOISE}::test_clips_beyond_the_limits_are_refused",
    ),
    Fault(
        "privacy/mechanisms/_parts/noise_grid.py",
        "GAP = MOST_NUMBERS * TAU",
        "GAP = 0.0",
        f"{NOISE}::test_a_claim_takes_the_gap_of_its_tables_off_delta",
    ),
    Fault(
        "privacy/mechanisms/_parts/clipped_sum.py",
        "noise**-2 - (2 * count) ** -2",
        "noise**-2 - (4 * count) ** -2",
        f"{BOUND}::test_what_a_device_adds_is_never_longer_than_priced_and_may_be_as_long",
    ),
    Fault(
        "privacy/mechanisms/laplace.py",
        "return 2 * (numbers if",
        "return 1 * (numbers if",
        f"{SINGLE}::test_laplace_by_the_book",
    ),
    Fault(
        "privacy/mechanisms/laplace.py",
        "payload, from_vector(draw_noise(",
        "payload, from_vector(0 * draw_noise(",
        f"{SINGLE}::test_laplace_at_opposite_corners_costs_exactly_epsilon",
    ),
    Fault(
        "privacy/mechanisms/gaussian.py",
        "return found / math.sqrt(self.share)",
        "return found",
        f"{BOUND}::test_a_share_of_a_promise_is_split_too",
    ),
    Fault(
        "privacy/mechanisms/gaussian.py",
        "else math.sqrt(2)",
        "else 1.0",
        f"{FORMS}::test_the_noise_is_smaller_by_a_square_root_of_two",
    ),
    Fault(
        "privacy/mechanisms/gaussian.py",
        "jnp.maximum(leaf, 0)",
        "leaf",
        f"{FORMS}::test_negative_numbers_count_as_zero",
    ),
    Fault(
        "privacy/mechanisms/within_organisation.py",
        "vector + draw_noise(noise, whole, vector.shape)",
        "vector",
        f"{EVERY}::test_the_mean_is_the_mean_and_the_noise_is_the_noise[within_organisation-1]",
    ),
    # what a server accepts
    Fault(
        "privacy/mechanisms/_parts/clipped_sum.py",
        "if squares <= grid.bound else",
        "if squares <= 4 * grid.bound else",
        f"{ACCEPTS}::test_a_report_beyond_the_bound_is_refused_to_the_last_step",
    ),
    Fault(
        "privacy/mechanisms/_parts/clipped_sum.py",
        "if length > most * (1 + 1e-9):",
        "if length > 9 * most:",
        f"{ACCEPTS}::test_a_total_of_updates_within_the_bound_is_no_longer_than_they_are_together",
    ),
    Fault(
        "privacy/mechanisms/_parts/clipped_sum.py",
        "abs(int(payload[WITHIN])) != _HALF",
        "abs(int(payload[WITHIN])) > 999",
        f"{ACCEPTS}::test_a_count_of_who_was_within_is_one_of_two",
    ),
    Fault(
        "privacy/mechanisms/_parts/summed.py",
        "if not 0 <= count <= people:",
        "if not count <= people:",
        f"{ACCEPTS}::test_a_total_counts_no_more_reports_than_people",
    ),
    Fault(
        "privacy/mechanisms/_parts/summed.py",
        "largest = count * self.largest",
        "largest = 2**62 * self.largest",
        f"{ACCEPTS}::test_a_total_larger_than_its_reports_is_refused",
    ),
    Fault(
        "privacy/mechanisms/laplace.py",
        "if norm <= bound else",
        "if norm <= 2 * bound else",
        f"{ACCEPTS}::test_a_report_beyond_the_l1_bound_is_refused",
    ),
    # accounting
    Fault(
        "privacy/sampler.py",
        "if self.drawn is None or delta == 0:",
        "if True:",
        f"{DRAWS}::test_a_device_that_is_asked_every_time_falls_silent",
    ),
    Fault(
        "privacy/sampler.py",
        "return chance / self.rounds if",
        "return 0.0 if",
        f"{DRAWS}::test_what_a_fair_draw_may_silence_is_taken_off_delta",
    ),
    Fault(
        "privacy/accounting/accountant.py",
        "700.0))) + self.of_gaps",
        "700.0)))",
        f"{NOISE}::test_a_gap_is_taken_off_delta_for_each_message",
    ),
    Fault(
        "privacy/accounting/accountant.py",
        "else group_privacy(event.epsilon, 2)",
        "else event.epsilon",
        f"{RELATIONS}::test_forms_for_different_neighbours_cost_what_a_swap_costs",
    ),
    Fault(
        "privacy/mechanisms/_parts/bits.py",
        'bounded(presence, relation="add_remove")',
        "bounded(presence)",
        f"{RELATIONS}::test_forms_for_different_neighbours_cost_what_a_swap_costs",
    ),
    Fault(
        "privacy/budget.py",
        'return Unbounded(f"{entry.unit}-level only")',
        "return entry.event",
        f"{BUDGET}::test_a_guarantee_covers_its_own_unit_and_finer_ones",
    ),
    Fault(
        "privacy/budget.py",
        'return Unbounded("one direction only")',
        "return entry.event",
        f"{BUDGET}::test_a_guarantee_in_one_direction_is_no_bound",
    ),
    Fault(
        "privacy/budget.py",
        "max(*reports, reports.total())",
        "max(*reports, 0)",
        f"{BUDGET}::test_more_reports_than_planned_rounds_are_not_covered_by_the_plan",
    ),
    # the gate and the device's round
    Fault(
        "device/gate.py",
        "update = zero_unless(finite, update)",
        "pass",
        f"{EVERY}::test_the_gate[none-0]",
    ),
    Fault("device/gate.py", "else jnp.ones_like(weight)", "else weight", f"{EVERY}::test_the_gate[gaussian-0]"),
    Fault(
        "device/gate.py",
        "payload, weight = zero_unless(allowed, (payload, weight))",
        "pass",
        f"{EVERY}::test_the_gate[laplace-0]",
    ),
    Fault("device/gate.py", "(spent < _fewer(", "(spent <= _fewer(", f"{EVERY}::test_the_gate[laplace-0]"),
    Fault(
        "device/gate.py",
        "(number > 0) & jnp.isfinite(number)",
        "(number > 0)",
        f"{MUTANTS}::test_a_public_number_that_is_not_positive_and_finite_gets_no_answer",
    ),
    Fault(
        "device/round.py",
        "for number in (stage, purpose, round):",
        "for number in (purpose, round):",
        f"{MUTANTS}::test_noise_is_fresh",
    ),
    Fault("device/round.py", "_METHOD, _NOISE = 0, 1", "_METHOD, _NOISE = 0, 0", f"{MUTANTS}::test_noise_is_fresh"),
    Fault(
        "device/node/node.py",
        "if not any(not key or has_valid_signature(key, request) for key in keys):",
        "if False:",
        f"{NODES}::test_only_the_server_that_the_plan_folder_names_is_obeyed",
    ),
    Fault(
        "device/node/node.py",
        'if request.kind != "hello" and request.to != name:',
        "if False:",
        f"{NODES}::test_messages_for_another_device_are_refused",
    ),
    Fault(
        "device/node/node.py",
        "if sent is None or kept.done < now:",
        "if True:",
        f"{NODES}::test_asked_again_a_node_sends_the_same_bytes_and_spends_nothing_more",
    ),
    # the server's round and session
    Fault(
        "server/round.py",
        "jax.random.fold_in(jax.random.fold_in(root, stage), round)",
        "jax.random.fold_in(root, round)",
        f"{MUTANTS}::test_noise_is_fresh",
    ),
    Fault(
        "server/round.py",
        "moves = (n > 0) | mechanism.always_releases",
        "moves = n > 0",
        f"{SINGLE}::test_a_cohort_that_is_empty_still_releases_noise_where_the_server_adds_it",
    ),
    Fault(
        "server/session/session.py",
        "if self.cohort and self.reported < self.policy.minimum:",
        "if False:",
        f"{NODES}::test_too_few_reports_release_nothing_and_the_round_is_opened_again",
    ),
    Fault(
        "server/session/session.py",
        "        if finite:\n",
        "        if True:\n",
        f"{DOORS}::test_a_close_that_is_not_finite_is_abandoned_and_changes_nothing",
    ),
    Fault(
        "core/chacha.py",
        "_key_words(os.urandom(32)",
        "_key_words(bytes(32)",
        f"{KEYS}::test_two_closes_of_a_restored_run_folder_have_two_noises",
    ),
    Fault(
        "server/session/inbox.py",
        "if problem := self._check(message):",
        "if problem := '':",
        f"{DOORS}::test_a_report_that_no_device_can_send_is_refused_and_the_round_goes_on",
    ),
    Fault(
        "server/session/inbox.py",
        'if reply.form == "total" and people == 1:',
        "if False:",
        f"{DOORS}::test_a_node_of_one_person_sends_no_total",
    ),
    Fault(
        "server/session/inbox.py",
        "if not 0 <= count <= asked:",
        "if False:",
        f"{NODES}::test_a_shard_cannot_count_for_more_people_than_were_asked",
    ),
    Fault(
        "server/session/inbox.py",
        "if reply.name in self.people:",
        "if False:",
        f"{NODES}::test_a_report_sent_twice_counts_once",
    ),
]


@pytest.mark.parametrize(
    "fault", FAULTS, ids=lambda fault: f"{Path(fault.file).stem}-{fault.noticed_by.rpartition('::')[2]}"
)
def test_a_planted_fault_is_noticed(fault, tmp_path):
    copy = tmp_path / "src" / "tacit"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    source = (copy / fault.file).read_text()
    assert source.count(fault.line) == 1, "the line to replace is there, once"
    (copy / fault.file).write_text(source.replace(fault.line, fault.instead))
    words = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "", "--tb=line", str(TESTS / fault.noticed_by))
    run = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(copy.parent)},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1, f"{fault.noticed_by} must fail\n{run.stdout[-2000:]}{run.stderr[-2000:]}"
    assert "= FAILURES =" in run.stdout, "a failure, and not an error"
