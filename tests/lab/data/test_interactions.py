"""A table becomes a population: every shape of table, every policy, and a sentence for every mistake."""

import gzip

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.core.plugins import RenamedWarning
from tacit.errors import DataError
from tacit.lab.data.columns import encode_ids, seconds
from tacit.lab.data.features import encode_field
from tacit.lab.data.interactions import interactions
from tacit.lab.evaluation.splits import leave_last_out

LOG = {
    "user_id": ["u2", "u1", "u2", "u1", "u2"],
    "item_id": [30, 10, 10, 20, 30],
    "datetime": ["2020-01-03", "2020-01-01", "2020-01-01", "2020-01-02", "2020-01-02"],
    "weight": [5.0, 4.0, 3.0, 2.0, 1.0],
}


def log(**columns):
    return pl.DataFrame({**LOG, **columns})


def history(world, name):
    at = list(world.users).index(name)
    return [world.item_names[i] for i in world.items[world.offsets[at] : world.offsets[at + 1]]]


def same(one, other):
    assert one.digest == other.digest
    assert list(one.users) == list(other.users)
    assert list(one.item_names) == list(other.item_names)


def test_events_are_ordered_by_user_and_time_and_numbered_by_name():
    world = interactions(log())
    assert list(world.users) == ["u1", "u2"]
    assert list(world.item_names) == [10, 20, 30]
    assert history(world, "u1") == [10, 20]
    assert history(world, "u2") == [10, 30, 30]
    assert world.labels is not None
    assert world.labels.tolist() == [4, 2, 3, 1, 5]
    assert world.times is not None
    assert world.times[1] - world.times[0] == 86400
    assert world.items.dtype == np.int32
    assert world.offsets.dtype == np.int64


@given(st.permutations(range(5)))
def test_the_order_of_the_rows_does_not_matter_when_there_are_times(order):
    same(interactions(log()[list(order)]), interactions(log()))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 50)), min_size=1, max_size=40))
def test_no_event_is_lost_or_made(rows):
    user, item, time = (list(column) for column in zip(*rows))
    world = interactions(pl.DataFrame({"user_id": user, "item_id": item, "datetime": time}))
    who = np.repeat(np.array(world.users), world.lengths)
    assert world.times is not None
    back = zip(who.tolist(), np.array(world.item_names)[world.items].tolist(), world.times.astype(int).tolist())
    assert sorted(back) == sorted(rows)
    assert all((np.diff(world.times[a:b]) >= 0).all() for a, b in zip(world.offsets, world.offsets[1:]))


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".csv.gz", ".parquet"])
def test_a_file_gives_what_the_table_gives(tmp_path, ending):
    file = tmp_path / f"log{ending}"
    if ending == ".parquet":
        log().write_parquet(file)
    else:
        text = log().write_csv(separator="\t" if ending == ".tsv" else ",").encode()
        file.write_bytes(gzip.compress(text) if ending.endswith(".gz") else text)
    same(interactions(file), interactions(log()))
    same(interactions(str(file)), interactions(log()))


def test_pandas_and_pyarrow_give_what_polars_gives():
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    same(interactions(pandas.DataFrame(LOG)), interactions(log()))
    same(interactions(pyarrow.table(LOG)), interactions(log()))
    with pytest.raises(DataError, match=r"column 'user_id' mixes 1 \(int\) and '1' \(str\)"):
        interactions(pandas.DataFrame({**LOG, "user_id": pandas.Series([1, "1", 1, 1, 1], dtype=object)}))


def test_identifiers_of_a_text_file_are_integers_only_if_written_so(tmp_path):
    file = tmp_path / "log.csv"
    file.write_text("user_id,item_id\n10,007\n9,7\n")
    world = interactions(file)
    assert list(world.users) == [9, 10]
    assert list(world.item_names) == ["007", "7"]


def test_columns_can_be_called_otherwise():
    names = {"user_id": "who", "item_id": "what", "datetime": "when", "weight": "stars"}
    same(
        interactions(log().rename(names), user="who", item="what", time="when", weight="stars"),
        interactions(log()),
    )
    same(interactions(log().rename({"datetime": "timestamp", "weight": "rating"})), interactions(log()))


def test_two_hundred_thousand_rows(tmp_path):
    rng = np.random.default_rng(0)
    user, item, time = rng.integers(3000, size=200_000), rng.integers(500, size=200_000), rng.permutation(200_000)
    pl.DataFrame({"user_id": user, "item_id": item, "timestamp": time}).write_parquet(tmp_path / "log.parquet")
    world = interactions(tmp_path / "log.parquet")
    assert (len(world), world.catalog.n_items, world.items.size) == (3000, 500, 200_000)
    mine = np.flatnonzero(user == 1234)
    assert history(world, 1234) == item[mine[np.argsort(time[mine])]].tolist()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["1970-01-01T00:00:10Z", "1970-01-01 01:00:20+01:00"], [10, 20]),
        (["1970-01-01T00:00:10.5-00:30", "1970-01-01 00:01"], [1810.5, 60]),
        (["10", "20.5"], [10, 20.5]),
        ([10, 20], [10, 20]),
    ],
)
def test_times_are_seconds(written, expected):
    assert seconds(pl.Series("t", written))[0].tolist() == expected


@pytest.mark.parametrize(("scale", "unit"), [(1e3, "milliseconds"), (1e6, "microseconds"), (1e9, "nanoseconds")])
def test_large_epoch_numbers_are_read_by_their_size_and_said(scale, unit):
    moments = np.array([1.5e9, 1.6e9])
    world = interactions(log().head(2).with_columns(datetime=pl.Series((moments * scale).astype(np.int64))))
    assert world.times is not None
    assert sorted(world.times.tolist()) == moments.tolist()
    assert f"Times of column 'datetime' read as {unit} by their size." in world.notes


def test_datetimes_keep_their_zone():
    zoned = pl.Series("t", ["1970-01-01 01:00:00"]).str.to_datetime().dt.replace_time_zone("Europe/Rome")
    assert seconds(zoned)[0].tolist() == [0.0]
    assert seconds(zoned.dt.date())[0].tolist() == [0.0]


def test_a_log_without_times_keeps_the_order_of_rows():
    world = interactions(log().drop("datetime"))
    assert history(world, "u2") == [30, 10, 30]
    assert world.times is None
    with pytest.raises(DataError, match="leave-last-out needs times, and this log has none; name their column"):
        world.require_times("leave-last-out")
    assert interactions(log()).require_times("anything").size == 5


def test_a_user_of_two_silos_is_two_devices():
    world = interactions(log(bank=["b", "a", "a", "a", "b"]), silo="bank")
    assert list(world.users) == ["u1", "u2", "u2"]
    assert world.silo is not None
    assert world.silo.tolist() == [0, 0, 1]
    assert world.silo_names == ["a", "b"]
    assert world.lengths.tolist() == [2, 1, 2]


def test_duplicates_are_merged_as_asked():
    assert history(interactions(log(), duplicates="latest"), "u2") == [10, 30]
    latest, first = interactions(log(), duplicates="latest"), interactions(log(), duplicates="first")
    assert latest.labels is not None
    assert first.labels is not None
    assert latest.labels.tolist() == [4, 2, 3, 5]
    assert first.labels.tolist() == [4, 2, 3, 1]
    assert "1 repeated events of a user and an item merged into the latest one." in latest.notes
    same(interactions(log(), duplicates="error"), interactions(log()))
    twice = pl.concat([log(), log().head(2)])
    assert "2 rows repeat another row's user, item and time; kept." in interactions(twice).notes
    with pytest.raises(DataError, match="duplicates='error': 2 rows repeat a user, an item and a time; choose"):
        interactions(twice, duplicates="error")


def test_users_with_few_events_are_kept_dropped_or_refused():
    said = "1 of 2 users have fewer than 3 events"
    assert f"{said}; kept." in interactions(log(), min_events=3).notes
    world = interactions(log(), on_few="drop", min_events=3)
    assert list(world.users) == ["u2"]
    assert list(world.item_names) == [10, 30]
    assert f"{said}; dropped with their 2 events." in world.notes
    with pytest.raises(DataError, match=f"on_few='error': {said}; choose on_few='drop' or 'keep'"):
        interactions(log(), on_few="error", min_events=3)
    with pytest.raises(DataError, match="so no user is left; choose a smaller min_events"):
        interactions(log(), on_few="drop", min_events=9)


def test_former_option_names_are_accepted_with_a_warning():
    with pytest.warns(RenamedWarning) as warned:
        old = interactions(log(), few="drop", least=3)  # pyright: ignore
    assert sorted(str(one.message) for one in warned) == [
        "The option 'few' is now called 'on_few'.",
        "The option 'least' is now called 'min_events'.",
    ]
    assert old.digest == interactions(log(), on_few="drop", min_events=3).digest


def test_the_summary_of_a_log_has_no_identifiers():
    frame = pl.DataFrame(
        {
            "user_id": ["alice-4711", "bob-0815"],
            "item_id": ["insulin-pen", "stroller"],
            "clinic": ["ward-seven", "ward-nine"],
            "datetime": [1_577_923_200, 1_577_923_300],
        }
    )
    log = interactions(frame, silo="clinic")
    printed = repr(log) + str(log) + repr(leave_last_out(interactions(pl.concat([frame, frame]))))
    for secret in ("alice", "4711", "bob", "0815", "insulin", "stroller", "ward", "1577923"):
        assert secret not in printed.replace("_", "")
    assert repr(log) == "Population(2 users, 2 items, 2 events, 2 organisations; with times)"
    assert len(repr(interactions(pl.concat([frame] * 50)))) < 100


def test_items_people_and_context_become_fields():
    films = pl.DataFrame(
        {
            "item_id": [20, 10, 99, 30],
            "title": ["The Red  Balloon", "Heat", "Nobody's", None],
            "genres": ["Drama|Short", "Crime|Drama", "War", None],
            "year": [1956, 1995, 2000, None],
        }
    )
    people = pl.DataFrame({"user_id": ["u1", "u2"], "age": [20, 40], "city": ["Rome", "Bari"]})
    world = interactions(log(place=["x", "y", "x", None, "y"]), items=films, people=people, context=["place"])
    title, genres, year = world.catalog.item_fields
    assert [field.kind for field in (title, genres, year)] == ["words", "multi", "numeric"]
    assert genres.values == ("Crime", "Drama", "Short")
    words = np.asarray(world.catalog.attributes["title"])
    assert [title.values[word] for word in words[1]] == ["the", "red", "balloon"]
    assert words[2].tolist() == [-1, -1, -1]
    assert np.asarray(world.catalog.attributes["genres"]).tolist() == [[1, 1, 0], [0, 1, 1], [0, 0, 0]]
    assert np.asarray(world.catalog.attributes["year"]).tolist() == [1995, 1956, 1975.5]
    assert world.person is not None
    assert world.person.tolist() == [[20, 1], [40, 0]]
    assert world.context is not None
    assert world.context.ravel().tolist() == [1, -1, 0, 1, 0]
    assert [field.name for field in world.catalog.event_fields] == ["place"]
    assert "1 described items have no event; left out." in world.notes


def test_kinds_can_be_given_and_lists_are_multi():
    films = pl.DataFrame({"item_id": [10, 20, 30], "tags": [["b", "a"], ["b"], []], "year": [1, 2, 1]})
    world = interactions(log(), items=films, kinds={"year": "categorical"})
    tags, year = world.catalog.item_fields
    assert (tags.kind, tags.values, year.kind, year.values) == ("multi", ("a", "b"), "categorical", ("1", "2"))
    words = interactions(log(), items=films, kinds={"tags": "words"}).catalog
    assert np.asarray(words.attributes["tags"]).tolist() == [[1, 0], [1, -1], [-1, -1]]


def test_an_item_without_description_is_counted():
    films = pl.DataFrame({"item_id": [10, 20], "colour": ["red", "blue"]})
    world = interactions(log(), items=films)
    assert np.asarray(world.catalog.attributes["colour"]).tolist() == [1, 0, -1]
    assert "1 of 3 items are not described; their fields are unknown." in world.notes


MISTAKES = [
    (lambda: interactions(log(), user="user_di"), "has no column 'user_di'; did you mean 'user_id'?"),
    (lambda: interactions(log(), time="datetme"), "has no column 'datetme'; did you mean 'datetime'?"),
    (lambda: interactions(log(), context=["plac"]), "read for its context, has no column 'plac'"),
    (lambda: interactions(log(user_id=["a", None, None, "b", "c"])), "got 2 missing of 5; drop those rows first"),
    (lambda: interactions(log(item_id=[1.0, 1.5, 2.0, 3.0, 4.0])), "must hold strings or integers as items, got 1.5"),
    (lambda: interactions(log(item_id=[True] * 5)), "must hold strings or integers as items, got Boolean"),
    (lambda: interactions(log(user_id=["a", "a ", "b", "c", "d"])), "surrounding white space, 'a' and 'a '"),
    (lambda: interactions(log(datetime=["2020-01-01", "soon", "x", "", "2020"])), "got 'soon' in row 2 (4 such rows)"),
    (lambda: interactions(log(datetime=[1, None, 2, 3, 4])), "got None in row 2 (1 such rows)"),
    (lambda: interactions(log(datetime=[True] * 5)), "must hold dates or numbers as times, got Boolean"),
    (lambda: interactions(log(datetime=[1.5e9, 1.5e12, 1, 2, 3]).tail(5).head(2)), "times in one unit"),
    (lambda: interactions(log(weight=["a"] * 5)), "must hold a number in every row as weight, got String"),
    (lambda: interactions(log().clear()), "the log must have at least one event, got an empty table"),
    (lambda: interactions(pl.DataFrame({"user_id": [], "item_id": []})), "must have at least one event, got an empty"),
    (lambda: interactions(log(), on_few="dorp"), "on_few must be one of keep, drop, error, got 'dorp'"),  # pyright: ignore
    (lambda: interactions(log(), duplicates="no"), "duplicates must be one of keep, latest, first, error"),  # pyright: ignore
    (lambda: interactions(7), "the log must be a pandas, polars or pyarrow table, or the path of a CSV"),
    (lambda: interactions("nowhere.csv"), "There is no file 'nowhere.csv'; give the path of a CSV"),
    (lambda: interactions(log(), kinds={"yaer": "numeric"}), "kinds has no column 'yaer'"),
    (lambda: items(["10", "20"]), "the table of items writes item '10' where the log writes 10"),
    (lambda: items(["x", "y"]), "the table of items writes item 'x' where the log writes 10: identifiers must be"),
    (lambda: items([10, 10]), "must describe each item once, got 10 twice"),
    (lambda: items([7, 8]), "describes none of the log's 3 items; the first is 10"),
    (lambda: items([10, 20], kinds={"a": "odd"}), "Field 'a': kind must be one of categorical, multi"),
    (lambda: items([10, 20], kinds={"a": "numeric"}), "Field 'a' must be numeric, got 'x' in row 1"),
]


def items(ids, **more):
    return interactions(log(), items=pl.DataFrame({"item_id": ids, "a": ["x", "y"]}), **more)


@pytest.mark.parametrize(("mistake", "sentence"), MISTAKES, ids=[sentence for _, sentence in MISTAKES])
def test_a_mistake_gets_a_sentence(mistake, sentence):
    with pytest.raises(DataError) as problem:
        mistake()
    assert sentence in str(problem.value)


def test_mistakes_in_files(tmp_path):
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "log.xyz").write_text("user_id\n")
    with pytest.raises(DataError, match="is empty; a log needs a line of column names"):
        interactions(tmp_path / "empty.csv")
    with pytest.raises(DataError, match=r"must end in one of .csv, .tsv, .txt, .parquet .* got '.xyz'"):
        interactions(tmp_path / "log.xyz")
    rows = "".join(f"{i},{i},3\n" for i in range(20_000))
    (tmp_path / "odd.csv").write_text(f"user_id,item_id,weight\n{rows}1,1,many\n")
    with pytest.raises(DataError, match="column 'weight' could not be read"):
        interactions(tmp_path / "odd.csv")
    (tmp_path / "odd.csv.gz").write_bytes(gzip.compress((tmp_path / "odd.csv").read_bytes()))
    with pytest.raises(DataError, match=r"odd.csv.gz' could not be read: could not parse"):
        interactions(tmp_path / "odd.csv.gz")


def test_too_many_values_for_multi_names_the_way_out():
    with pytest.raises(DataError, match=r"at most 10,000 values, got 10,001; use kinds=\{'tags': 'words'\}"):
        encode_field(pl.Series(["|".join(f"t{i}" for i in range(10_001))]), "tags", "multi")


def test_identifiers_that_are_whole_floats_or_categories():
    assert encode_ids(pl.Series("u", [2.0, 1.0]), "user").names.tolist() == [1, 2]
    assert encode_ids(pl.Series("u", ["b", "a"], dtype=pl.Categorical), "user").names.tolist() == ["a", "b"]


def test_a_file_with_another_delimiter(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("user_id;item_id\n1;7\n2;7\n")
    with pytest.raises(DataError, match="if a semicolon stands between its columns, say so: delimiter ';'"):
        interactions(path)
    assert interactions(path, delimiter=";").items.tolist() == [0, 0]


def test_files_that_are_no_tables(tmp_path):
    (tmp_path / "log.xlsx").write_bytes(b"PK")
    (tmp_path / "twice.csv").write_text("user_id,item_id,user_id\n1,7,2\n")
    for path, sentence in (
        (tmp_path, "is a folder; give the path of one CSV"),
        (tmp_path / "log.xlsx", "is a spreadsheet, which Tacit does not read; save the sheet as CSV"),
        (tmp_path / "twice.csv", "has two columns 'user_id'; rename or delete one"),
    ):
        with pytest.raises(DataError, match=sentence):
            interactions(path)


def test_the_bad_time_is_named_and_not_the_good_ones():
    times = [str(1_700_000_000 + row) for row in range(900)]
    frame = pl.DataFrame({"user_id": [1] * 901, "item_id": range(901), "datetime": [*times, "yesterday"]})
    with pytest.raises(DataError, match=r"got 'yesterday' in row 901 \(1 such rows\)"):
        interactions(frame)
