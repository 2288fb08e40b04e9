"""Plans side by side: the same questions, honest intervals, sweeps, and comparisons that survive an interruption."""

import json
import signal
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import typer
from scipy import stats

import tacit
from tacit.cli.compare import command as compare_plans
from tacit.cli.tune import command as tune_plan
from tacit.core.plan import Plan
from tacit.errors import DataError, PlanError, RunError
from tacit.lab.data.synthetic.small import taste_groups
from tacit.lab.evaluation.statistics import interval
from tacit.lab.experiments.compare import collect_warnings, compare
from tacit.lab.experiments.comparison import Comparison
from tacit.lab.experiments.variants import parse_values, plan_settings, sweep_variants
from tacit.lab.simulation.stage_runner import Rounds

LOG = taste_groups(users=70, items=40, events=12)  # more than a scanned cohort holds: rounds are played one by one
FCF = tacit.plan("fcf").with_setting("rounds", 2).with_setting("hyper.dim", 4)
POPULARITY, MFU, RANDOM = (tacit.plan(name) for name in ("popularity", "mfu", "random"))


def noisy(plan: Plan = POPULARITY, epsilon: float = 0.5) -> Plan:
    return plan.with_setting("privacy", {"mechanism": "gaussian", "epsilon": epsilon})


@pytest.fixture(scope="module")
def found() -> Comparison:
    """One comparison that most tests look at."""
    return compare([FCF, "popularity", MFU], LOG, seeds=(3, 4), sweep={"rounds": [1, 2]}, quiet=True)


# ---- the same for all ----


def test_every_plan_runs_with_every_seed_on_the_same_people(found):
    assert found.names == ("fcf rounds=1", "fcf rounds=2", "popularity rounds=1", "popularity rounds=2", "mfu")
    assert list(found.trials) == list(found.names)
    runs = [trial.run for trials in found.trials.values() for trial in trials]
    assert [run.environment["seed"] for run in runs] == [3, 4] * 5
    assert len({id(run.split) for run in runs}) == 1
    assert len({id(run.population) for run in runs}) == 1
    for run in runs:
        np.testing.assert_array_equal(run.evaluation.units, found.common.units)


def test_a_protocol_that_draws_people_draws_them_once():
    # privrec holds people out by chance: if a seed drew its own, the second run would be asked about others.
    asked = [trial.run.split for trial in compare([MFU], LOG, "privrec", (0, 1), quiet=True).trials["mfu"]]
    assert asked[0] is asked[1]
    other = compare([MFU], LOG, "privrec", (1,), quiet=True).trials["mfu"][0].run.split
    assert not np.array_equal(asked[0].test.target, other.test.target)  # the seed does matter


def test_sampled_candidates_are_the_same_in_every_run():
    # mfu has no chance in it, but for ties: what differs between two seeds would be the candidates.
    log = taste_groups(users=60, items=150, events=12)
    first, second = compare([MFU], log, "dplcf", (0, 1), quiet=True).trials["mfu"]
    np.testing.assert_array_equal(first.evaluation.values["NDCG@10"], second.evaluation.values["NDCG@10"])
    other = compare([MFU], log, "dplcf", (1,), quiet=True).trials["mfu"][0]
    assert not np.array_equal(first.evaluation.values["NDCG@10"], other.evaluation.values["NDCG@10"])


def test_a_seed_is_a_run_like_any_other(found):
    alone = tacit.simulate(FCF, LOG, protocol="full", seed=3, quiet=True)
    assert found.trials["fcf rounds=2"][0].evaluation.metrics == pytest.approx(alone.metrics)


# ---- intervals and tests ----


def test_a_plan_compared_with_itself_does_not_differ():
    twice = compare([RANDOM, RANDOM], LOG, seeds=(0, 1, 2), quiet=True)
    assert twice.names == ("random", "random (2)")
    for score in twice.scores["random (2)"].values():
        assert (score.difference.difference.mean, score.difference.p, score.by_seeds) == (0.0, 1.0, 1.0)
        assert score.difference.difference.low == score.difference.difference.high == 0.0
        assert score.mark == ""
        assert score.steps == (0.0, 0.0, 0.0)


def planted(found: Comparison, values: dict[str, list[np.ndarray]]) -> Comparison:
    """The comparison as if these plans had given these answers, seed by seed."""

    def answered(trial, own):
        return replace(
            trial, evaluation=replace(trial.evaluation, values={"HR@10": own}, metrics={"HR@10": own.mean()})
        )

    trials = {n: tuple(answered(t, v) for t, v in zip(found.trials[n], values[n])) for n in values}
    variants = tuple(one for one in found.variants if one.name in values)
    return Comparison(found.seeds, variants, trials, variants[0].name)


RNG = np.random.default_rng(5)
BASE = [RNG.random(70), RNG.random(70)]


@pytest.mark.parametrize(
    ("steps", "mark"),
    [
        ((0.3, 0.3), "▲"),
        ((-0.3, -0.3), "▼"),
        ((0.0, 0.0), ""),
        ((0.6, -0.1), ""),  # by users it differs, by seeds it does not
        ((0.001, 0.001), ""),  # the other way round
    ],
)
def test_a_mark_needs_both_the_users_and_the_seeds(found, steps, mark):
    noise = RNG.standard_normal((2, 70)) * 0.1
    noise -= noise.mean(axis=1, keepdims=True)
    theirs = [base + step + own for base, step, own in zip(BASE, steps, noise)]
    score = planted(found, {"fcf rounds=1": BASE, "mfu": theirs}).scores["mfu"]["HR@10"]
    assert score.mark == mark
    assert score.steps == pytest.approx(steps, abs=1e-12)
    assert score.difference.difference.mean == pytest.approx(np.mean(steps))


def test_units_are_averaged_over_seeds_and_then_resampled(found):
    score = planted(found, {"mfu": BASE}).scores["mfu"]["HR@10"]
    assert score.interval == interval(np.mean(BASE, axis=0))
    assert score.mean == pytest.approx(np.mean(BASE))
    assert score.seeds == pytest.approx([own.mean() for own in BASE])
    assert score.deviation == pytest.approx(np.std([own.mean() for own in BASE], ddof=1))
    assert score.difference is None


def test_p_values_are_those_of_paired_tests_after_holm(found):
    mean = {name: np.mean([t.evaluation.values["HR@10"] for t in found.trials[name]], axis=0) for name in found.names}
    raw = {name: stats.ttest_rel(mean[name], mean[found.reference]).pvalue for name in found.names[1:]}
    least = min(raw, key=lambda name: raw[name])
    assert found.scores[least]["HR@10"].difference.p == pytest.approx(min(1.0, 4 * raw[least]))
    assert found.scores[least]["HR@10"].difference.correction == "t, holm of 4"
    for name, p in raw.items():
        assert found.scores[name]["HR@10"].difference.t == pytest.approx(p)


def test_the_meaning_of_intervals_and_marks_is_printed(found):
    assert "over the 70 users evaluated, each with the mean of its values over 2 seeds" in found.covers
    assert "a mean has a standard deviation of" in found.covers
    assert (
        "below fcf rounds=1: paired t-test over the same users, p < 0.05 after Holm's correction for 4" in found.marks
    )
    assert found.marks.endswith("and a paired t-test over the 2 seeds, p < 0.05 uncorrected.")
    one = replace(found, seeds=(3,), trials={name: some[:1] for name, some in found.trials.items()})
    assert one.covers.endswith(
        "over 1 seed: it covers the sampling of users. The variation between runs comes on top; one seed cannot show it."
    )
    assert one.marks.endswith("one seed cannot tell a better plan from a luckier run.")
    assert one.scores["mfu"]["HR@10"].by_seeds is None


def test_a_metric_of_lists_has_no_interval():
    found = compare([MFU, RANDOM], taste_groups(users=40, items=60, events=30), "fpl", quiet=True)
    score = found.scores["random"]["IC@10"]
    assert (score.interval, score.difference, score.mark) == (None, None, "")
    assert found.scores["random"]["P@10"].interval is not None
    json.dumps(tacit.core.run_folder.plain(found.to_dict()))


def test_everything_is_plain_values(found):
    made = json.loads(json.dumps(tacit.core.run_folder.plain(found.to_dict())))
    assert [one["name"] for one in made["plans"]] == list(found.names)
    assert made["plans"][1]["setting"] == {"rounds": 2}
    assert [one["seed"] for one in made["plans"][0]["trials"]] == [3, 4]
    assert made["plans"][0]["privacy"]["epsilon"] == "inf"
    low, high = made["plans"][4]["metrics"]["HR@10"]["interval"]
    assert low <= made["plans"][4]["metrics"]["HR@10"]["mean"] <= high
    assert made["plans"][0]["metrics"]["HR@10"].keys() == {"mean", "interval", "seeds", "deviation"}
    assert -1 <= made["plans"][4]["metrics"]["HR@10"]["difference"]["mean"] <= 1


def test_all_seeds_pooled_are_one_trial(found):
    pooled = found.pooled("fcf rounds=2")
    assert pooled.intervals["HR@10"] == found.scores["fcf rounds=2"]["HR@10"].interval
    assert pooled.run.metrics == pytest.approx({m: s.mean for m, s in found.scores["fcf rounds=2"].items()})
    assert found.trials["fcf rounds=2"][0].run.evaluation is not pooled.evaluation


# ---- sweeps ----


def test_a_grid_has_every_combination_and_a_plan_without_the_setting_runs_once():
    variants, notes = sweep_variants([FCF, MFU], {"rounds": [1, 2], "hyper.dim": [4, 8]}, {"server.rate": 0.1})
    assert [one.name for one in variants] == [
        *(f"fcf rounds={rounds} hyper.dim={dim}" for rounds in (1, 2) for dim in (4, 8)),
        "mfu",
    ]
    assert variants[1].plan.stages[0].hyper["dim"] == 8
    assert all(one.plan.stages[0].server["rate"] == 0.1 for one in variants[:4])
    assert variants[0].setting == {"rounds": 1, "hyper.dim": 4}
    assert notes == ["mfu has no setting server.rate, rounds, hyper.dim and runs without, once"]
    assert sweep_variants([FCF, MFU], {}, {"hyper.dim": 8})[1] == ["mfu has no setting hyper.dim and runs without"]


def test_a_part_is_named_before_its_settings():
    sweep = {"privacy.epsilon": [1, 2], "privacy.mechanism": ["none", "gaussian"]}
    variants, notes = sweep_variants([FCF], sweep)
    assert [one.name for one in variants] == [
        "fcf privacy.mechanism=none",
        "fcf privacy.epsilon=1 privacy.mechanism=gaussian",
        "fcf privacy.epsilon=2 privacy.mechanism=gaussian",
    ]
    assert notes == []


def test_a_later_stage_has_settings_too():
    two = Plan("two", (FCF.stages[0], FCF.stages[0]))
    assert "2.hyper.dim" in plan_settings(two)
    (one,), _ = sweep_variants([two], {"2.hyper.dim": [8], "1.hyper.dim": [2]})[0], None
    assert [stage.hyper["dim"] for stage in one.plan.stages] == [2, 8]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.5,1", [0.5, 1]),
        ('"all","own"', ["all", "own"]),
        ("laplace, none", ["laplace", "none"]),
        ('["items"],["items", "more"]', [["items"], ["items", "more"]]),
        ("5, pass", [5, "pass"]),
    ],
)
def test_values_are_read_as_toml(text, values):
    assert parse_values(text) == values


@pytest.mark.parametrize(
    ("plans", "sweep", "sentence"),
    [
        ([FCF], {"hyper.dmi": [1]}, r"^fcf has no setting 'hyper.dmi'; did you mean 'hyper.dim'\? Known: cohort, "),
        ([FCF, MFU], {"hyper.dmi": [1]}, r"^fcf or mfu has no setting 'hyper.dmi'; did you mean 'hyper.dim'\?"),
        (
            [FCF],
            {"privacy.epsilon": [1, 2]},
            "privacy.epsilon = 1 is an empty promise: mechanism 'none' adds no noise.",
        ),
        ([MFU], {"rounds": [2]}, "trains is empty but 2 rounds would request reports"),
        ([FCF], {"hyper.dim": [4, 0]}, "^fcf hyper.dim=0: Plan stage 1: hyper of fcf.dim must be at least 1, got 0."),
        ([FCF], {"2.rounds": [4]}, "Plan 'fcf' has 1 stage"),
        ([FCF], {"hyper.dim": []}, "^A sweep over hyper.dim needs at least one value, got none; write hyper.dim=1,2,4"),
    ],
)
def test_a_sweep_that_cannot_be_meant_is_refused(plans, sweep, sentence):
    with pytest.raises(PlanError, match=sentence):
        sweep_variants(plans, sweep)


def test_a_sweep_over_epsilon_gives_every_plan_that_sends_something_its_noise():
    variants, notes = sweep_variants([FCF, MFU], {"epsilon": [1, 4]})
    assert [one.name for one in variants] == ["fcf epsilon=1", "fcf epsilon=4", "mfu"]
    assert [one.plan.stages[0].privacy.get("epsilon") for one in variants] == [1.0, 4.0, None]
    assert notes == ["mfu has no setting epsilon and runs without, once"]


# ---- before anything runs ----


@pytest.fixture
def started(monkeypatch):
    """The plans that were started."""
    import tacit.lab.experiments.compare as module

    seen, simulate = [], module.simulate
    monkeypatch.setattr(module, "simulate", lambda plan, *a, **k: (seen.append(plan.name), simulate(plan, *a, **k))[1])
    return seen


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        ({"plans": []}, PlanError, "^A comparison needs at least one plan, got none"),
        ({"plans": ["mfu", "fcff"]}, PlanError, r"did you mean 'fcf'\?"),
        ({"plans": [MFU, FCF], "seeds": (0, 0)}, PlanError, r"needs one or more different seeds, got \[0, 0\]\.$"),
        ({"plans": [MFU, FCF], "seeds": ()}, PlanError, r"needs one or more different seeds, got \[\]\.$"),
        ({"plans": [MFU], "protocol": "dplcf"}, DataError, "99 negatives need as many items"),
        ({"plans": [MFU], "protocol": "ful"}, PlanError, r"did you mean 'full'\?"),
        ({"plans": [MFU], "reference": "mfuu"}, PlanError, r"^The comparison has no plan 'mfuu'; did you mean 'mfu'\?"),
        (
            {"plans": [MFU, FCF], "sweep": {"cohort": [{"sampler": "fixed", "count": 999}]}},
            PlanError,
            r"^fcf cohort=.*: cohort.count must be at most the number of devices, 70, got 999",
        ),
        (
            {"plans": [MFU, FCF], "sweep": {"trains": [["itms"]]}},
            PlanError,
            r"^fcf trains=\[\"itms\"\]: .* trains names",
        ),
    ],
)
def test_a_mistake_stops_everything_before_anything_runs(started, change, error, sentence):
    with pytest.raises(error, match=sentence):
        compare(log=LOG, quiet=True, **change)
    assert started == []


def test_the_reference_may_be_any_plan(found):
    last = replace(found, reference="mfu")
    assert last.scores["mfu"]["HR@10"].difference is None
    one, other = found.scores["mfu"]["HR@10"], last.scores["fcf rounds=1"]["HR@10"]
    assert one.difference.difference.mean == pytest.approx(-other.difference.difference.mean)


def test_a_hopeless_plan_is_noted_once_and_not_warned_about():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        notes = compare([noisy(), MFU], LOG, seeds=(0, 1), quiet=True).notes
    note, other = notes
    assert other.startswith("mfu: chance ranks "), "what people have said nothing of is all the same to it"
    assert note.startswith("popularity: Stage 1 of popularity looks hopeless: signal to noise is")


def test_another_warning_is_still_said():
    with pytest.warns(UserWarning, match="something else"), collect_warnings([]):
        warnings.warn("something else", UserWarning, stacklevel=1)


# ---- going on after an interruption ----


def test_an_interrupted_comparison_goes_on_where_it_stopped(tmp_path, monkeypatch):
    whole = compare([POPULARITY, FCF], LOG, seeds=(0, 1), quiet=True)
    play, played = Rounds.play, []

    def interrupted(self, state, first, last):
        played.append((self.stage.method, self.options.cohort_seed, first))
        if played[-1] == ("fcf", 0, 1) and played.count(("fcf", 0, 1)) == 1:
            signal.raise_signal(signal.SIGINT)
        return play(self, state, first, last)

    monkeypatch.setattr(Rounds, "play", interrupted)
    monkeypatch.setattr("tacit.lab.simulation.stage_runner.SCANNED", 1)  # a round at a time
    plans = [POPULARITY, FCF.with_setting("rounds", 4)]
    with pytest.raises(KeyboardInterrupt):
        compare(plans, LOG, seeds=(0, 1), out=tmp_path, quiet=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fcf-seed0", "popularity-seed0", "popularity-seed1"]
    assert played == [("popularity", 0, 0), ("popularity", 1, 0), ("fcf", 0, 0), ("fcf", 0, 1)]
    played.clear()
    again = compare(plans, LOG, seeds=(0, 1), out=tmp_path, quiet=True)
    assert played == [("fcf", 0, 2), ("fcf", 0, 3), *(("fcf", 1, round) for round in range(4))]
    assert again.trials["popularity"][1].evaluation.metrics == whole.trials["popularity"][1].evaluation.metrics
    played.clear()
    done = compare(plans, LOG, seeds=(0, 1), out=tmp_path, quiet=True)
    assert played == []
    assert done.scores == again.scores
    assert json.loads((tmp_path / "comparison.json").read_text())["reference"] == "popularity"
    rows = (tmp_path / "fcf-seed1" / "rounds.jsonl").read_text().splitlines()
    assert done.trials["fcf"][1].seconds >= sum(json.loads(row)["seconds"] for row in rows)


def test_a_folder_of_another_run_is_refused_before_anything_runs(tmp_path, started):
    compare([MFU], LOG, seeds=(0,), out=tmp_path, quiet=True)
    started.clear()
    other = taste_groups(users=70, items=40, events=12, seed=1)
    with pytest.raises(
        RunError, match=r"mfu-seed0 holds a run of another log: \w+, this one's is \w+; name another folder"
    ):
        compare([MFU], other, out=tmp_path, quiet=True)
    (tmp_path / "mfu-seed0").rename(tmp_path / "mfu-seed5")
    with pytest.raises(RunError, match=r"mfu-seed5 holds a run of another seed: 0, this one's is 5"):
        compare([MFU], LOG, seeds=(5,), out=tmp_path, quiet=True)
    (tmp_path / "mfu-seed5").rename(tmp_path / "random-seed0")
    with pytest.raises(RunError, match=r"random-seed0 holds a run of another plan"):
        compare([RANDOM], LOG, out=tmp_path, quiet=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file is a file; name a folder for the runs"):
        compare([RANDOM], LOG, out=tmp_path / "file", quiet=True)
    assert started == []


def test_names_that_a_folder_cannot_hold_are_told_apart(tmp_path):
    one = [replace(MFU, name=name) for name in ("a/b", "a b")]
    found = compare(one, LOG, out=tmp_path, quiet=True)
    assert found.names == ("a/b", "a b")
    folders = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
    assert folders == sorted([f"a_b-{one[1].digest[:8]}-seed0", "a_b-seed0"])


# ---- the command ----


@pytest.fixture
def command(monkeypatch, tmp_path, capsys):
    """`tacit compare …` in this process: the exit code and what was printed."""
    import tacit.cli

    app = typer.Typer()
    app.command(name="compare")(compare_plans)
    app.command(name="tune")(tune_plan)
    monkeypatch.setattr(tacit.cli, "app", app)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr("tacit.lab.data.datasets.open_log", lambda *words: {("groups", 70, 0): LOG}[words[:3]])
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["tacit", "compare", *words])
        try:
            tacit.cli.main()
            code = 0
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def test_the_command_prints_a_table_that_explains_itself(command, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    code, out, err = command(
        "mfu", "popularity", "--devices", "70", "--sweep", "rounds=1,2", "--seeds", "2", "--out", "runs"
    )
    assert (code, err) == (0, "")
    assert "popularity rounds=2" in out
    assert "±" in out
    assert "paired t-test over the same users" in out
    assert "note: mfu has no setting rounds and runs without, once" in out
    assert "popularity rounds=1, popularity rounds=2: ε = ∞ per run" in out
    assert "A report with figures is in runs/report.html." in out
    assert "<html" in (tmp_path / "runs" / "report.html").read_text()
    assert (tmp_path / "runs" / "popularity_rounds=1-seed1" / "metrics.json").exists()


def test_the_command_speaks_json(command, tmp_path):
    words = ["mfu", "random", "--devices", "70", "--seeds", "1", "--protocol", "privrec", "--reference", "random"]
    code, out, err = command(*words, "--json")
    assert (code, err) == (0, "")
    made = json.loads(out)
    assert [one["name"] for one in made["plans"]] == ["mfu", "random"]
    assert made["reference"] == "random"
    assert made["report"] == "tacit-compare.html"
    assert (tmp_path / made["report"]).exists()
    code, out, _ = command(*words)
    assert "Hits@30" in out  # many metrics: one column a plan
    assert code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["fcf", "--sweep", "hyper.dim"], "--sweep takes name=value,value, got 'hyper.dim'."),
        (["fcf", "--sweep", "hyper.dim="], "needs at least one value"),
        (["fcf", "--sweep", "hyper.dmi=2"], "did you mean 'hyper.dim'?"),
        (["fcf", "--set", "hyper.dim"], "--set takes name=value, got 'hyper.dim'."),
        (["fcf", "--set", "hyper.dmi=2"], "did you mean 'hyper.dim'?"),
        (["fcf", "mfuu"], "did you mean 'mfu'?"),
        (["fcf", "--seeds", "0"], "0 is not in the range"),
        ([], "PLANS"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_sentence(command, words, sentence):
    code, out, err = command(*words, "--devices", "70")
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--out", "runs"], "Interrupted; the same command resumes from runs."),
        ([], "Interrupted; nothing is saved without --out."),
    ],
)
def test_an_interruption_says_how_to_go_on(command, monkeypatch, words, sentence):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("tacit.lab.experiments.compare.simulate", stop)
    code, out, err = command("mfu", "--devices", "70", *words)
    assert (code, out, err.strip()) == (130, "", sentence)
