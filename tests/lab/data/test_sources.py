"""Readers, on small files of the same shape written here, and on the real logs where they are present."""

import gzip
import importlib
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from tacit.core.plugins import RenamedWarning
from tacit.errors import DataError
from tacit.lab.data import datasets, sources, synthetic
from tacit.lab.data.datasets import (
    Dataset,
    about_dataset,
    data_folder,
    dataset,
    dataset_names,
    open_log,
    register_dataset,
)
from tacit.lab.data.sources._files import find_file, read_bytes
from tacit.lab.data.synthetic.small import checkerboard


@pytest.fixture
def room(tmp_path, monkeypatch):
    """A data folder of its own; `room(name, files)` writes a dataset into it."""
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))

    def write(name, files, encoding="utf-8"):
        for file, text in files.items():
            place = tmp_path / name / file
            place.parent.mkdir(parents=True, exist_ok=True)
            raw = text if isinstance(text, bytes) else text.encode(encoding)
            place.write_bytes(gzip.compress(raw) if file.endswith(".gz") and isinstance(text, str) else raw)
        return tmp_path / name

    return write


def field(world, name):
    fields = (*world.catalog.item_fields, *world.catalog.person_fields, *world.catalog.event_fields)
    return next(one for one in fields if one.name == name)


def counts(world):
    return len(world), world.catalog.n_items, world.items.size


LATIN = {
    "ratings.dat": "1::10::5::100\n1::20::3::50\n2::10::1::70\n",
    "movies.dat": "10::Été (1995)::Drama|Crime\n20::Toy Story 2 (1999)::Comedy\n30::Unseen (2000)::War\n",
    "users.dat": "1::F::25::10::48067\n2::M::56::16::70072\n",
}


def test_movielens_1m(room):
    room("ml-1m", LATIN, "latin-1")
    world = dataset("ml-1m")
    assert counts(world) == (2, 2, 3)
    assert world.items.tolist() == [1, 0, 0]
    assert world.labels is not None
    assert world.labels.tolist() == [3, 5, 1]
    assert field(world, "title").values == ("2", "story", "toy", "été")
    assert field(world, "genres").values == ("Comedy", "Crime", "Drama")
    assert np.asarray(world.catalog.attributes["year"]).tolist() == [1995, 1999]
    assert [field(world, name).kind for name in ("gender", "age", "occupation")] == ["categorical"] * 3
    assert world.person is not None
    assert world.person[:, 0].tolist() == [0, 1]


def test_movielens_100k(room):
    flags = lambda *on: "|".join("1" if k in on else "0" for k in range(19))  # noqa: E731
    films = (
        f"1|Toy Story (1995)|01-Jan-1995||http://x|{flags(3, 5)}\n2|GoldenEye (1995)|01-Jan-1995||http://y|{flags(1)}\n"
    )
    people = "1|24|M|technician|85711\n2|53|F|other|94043\n"
    room(
        "ml-100k", {"u.data": "1\t2\t3\t881250949\n2\t1\t4\t891717742\n", "u.item": films, "u.user": people}, "latin-1"
    )
    world = dataset("ml-100k")
    assert counts(world) == (2, 2, 2)
    assert field(world, "genres").values == ("Action", "Animation", "Comedy")
    assert np.asarray(world.catalog.attributes["genres"]).tolist() == [[0, 1, 1], [1, 0, 0]]
    assert world.person is not None
    age = [one.name for one in world.catalog.person_fields].index("age")
    assert world.person[:, age].tolist() == [24, 53]


CSV = {
    "ratings.csv.gz": "userId,movieId,rating,timestamp\n1,31,2.5,1260759144\n1,1029,3.0,1260759100\n2,31,4.0,5\n",
    "movies.csv": 'movieId,title,genres\n31,"Trial, The (1962)",Drama\n1029,Dumbo (1941),(no genres listed)\n',
    "links.csv": "movieId,imdbId,tmdbId\n31,0000007,1\n1029,0033563,2\n",
}


@pytest.mark.parametrize("name", ["ml-latest-small", "ml-latest", "ml-20m"])
def test_movielens_with_csv_files(room, name):
    room(name, CSV)
    world = dataset(name)
    assert counts(world) == (2, 2, 3)
    assert world.items.tolist() == [1, 0, 0]
    assert field(world, "title").values == ("dumbo", "the", "trial")
    assert field(world, "genres").values == ("Drama",)


TWEETS = {
    "ratings.dat.gz": "1::0000007::9::1381945744\n2::0033563::6::1381945745\n2::0000007::7::1381945746\n",
    "movies.dat": "0000007::The Trial: Part Two (1962)::Drama|Short\n0033563::Dumbo (1941)::Animation\n",
}


def test_movietweetings(room):
    room("movietweetings", TWEETS)
    world = dataset("movietweetings")
    assert counts(world) == (2, 2, 3)
    assert world.item_names == ["0000007", "0033563"]
    assert "two" in field(world, "title").values


def test_films_in_common_are_two_silos(room):
    room("movietweetings", TWEETS)
    room("ml-latest-small", CSV)
    world = dataset("moviedata")
    assert world.silo_names == ["MovieLens", "MovieTweetings"]
    assert world.users == ["MovieLens 1", "MovieLens 2", "MovieTweetings 1", "MovieTweetings 2"]
    assert counts(world) == (4, 2, 4)
    everything = dataset("moviedata", liked_only=False)
    assert everything.labels is not None
    assert sorted(everything.labels.tolist()) == [0, 0, 1, 1, 1, 1]


def test_films_in_common_need_some(room):
    room("movietweetings", {**TWEETS, "ratings.dat.gz": "1::0000001::9::1381945744\n"})
    room("ml-latest-small", CSV)
    with pytest.raises(DataError, match="films rated in both MovieLens and MovieTweetings, and found none"):
        dataset("moviedata")


FRAPPE = "user\titem\tcnt\tdaytime\tweekday\tisweekend\thomework\tcost\tweather\tcountry\tcity\n" + "".join(
    f"{u}\t{i}\t{n}\tmorning\tsunday\tweekend\tunknown\t{cost}\tsunny\tSpain\t0\n"
    for u, i, n, cost in [(0, 0, 1, "free"), (0, 5, 14, "paid"), (1, 0, 2, "free"), (1, 3, 1, "free")]
)


def test_frappe_and_its_negatives(room):
    room("frappe", {"frappe.csv": FRAPPE})
    world = dataset("frappe")
    assert counts(world) == (2, 3, 4)
    assert world.times is None
    assert world.labels is not None
    assert world.labels.tolist() == [1] * 4
    assert world.context is not None
    assert world.context[:, 0].tolist() == [1, 14, 2, 1]
    assert field(world, "cost").values == ("free", "paid")
    more = dataset("frappe", negatives=2, seed=3)
    assert counts(more) == (2, 3, 12)
    assert more.labels is not None
    assert more.labels.tolist() == [1, 0, 0] * 4
    for device in range(2):
        mine = slice(more.offsets[device], more.offsets[device + 1])
        liked = more.items[mine][more.labels[mine] == 1]
        assert not np.isin(more.items[mine][more.labels[mine] == 0], liked).any()
    assert dataset("frappe", negatives=2, seed=3).digest == more.digest


def test_frappe_says_what_is_missing(room):
    place = room("frappe", {"frappe.csv": FRAPPE.replace("weather", "wether")})
    with pytest.raises(DataError, match=r"frappe.csv must have the column 'weather'; it has user, item"):
        dataset("frappe")
    lines = FRAPPE.splitlines()[:2]
    (place / "frappe.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match="negatives need an app that the user never launched"):
        dataset("frappe", negatives=2)


LSAPP = (
    "user_id\tsession_id\ttimestamp\tapp_name\tevent_type\n"
    "0\t1\t2018-01-16 06:01:05\tMines (Classic)\tOpened\n"
    "0\t1\t2018-01-16 06:01:05\tMines (Classic)\tClosed\n"
    "0\t2\t2018-01-16 06:25:54\tGmail\tUser Interaction\n"
    "0\t2\t2018-01-16 06:20:05\tGoogle\tOpened\n"
    "7\t3\t2018-01-17 06:26:05\tGoogle\tOpened\n"
)


@pytest.mark.parametrize("packing", ["plain", "gz", "tar"])
def test_lsapp_keeps_opened_events(room, packing):
    file = "lsapp.tsv" if packing == "plain" else "lsapp.tsv.gz"
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as archive:
        entry = tarfile.TarInfo("lsapp.tsv")
        entry.size = len(LSAPP)
        archive.addfile(entry, io.BytesIO(LSAPP.encode()))
    room("lsapp", {file: held.getvalue() if packing == "tar" else LSAPP})
    world = dataset("lsapp")
    assert counts(world) == (2, 2, 3)
    assert world.item_names == ["Google", "Mines (Classic)"]
    assert world.items.tolist() == [1, 0, 0]
    assert world.times is not None
    assert world.times[1] - world.times[0] == 19 * 60


def test_lsapp_without_opened_events_or_columns(room):
    room("lsapp", {"lsapp.tsv": LSAPP.replace("Opened", "Closed")})
    with pytest.raises(DataError, match="must have events of type Opened, and has none in 5 rows"):
        dataset("lsapp")
    room("lsapp", {"lsapp.tsv": LSAPP.replace("app_name", "app")})
    with pytest.raises(DataError, match="must have the column 'app_name'"):
        dataset("lsapp")


@pytest.mark.parametrize("mark", [" ", ",", "\t"])
def test_app_usage(room, mark):
    rows = [
        ("1", "20160420120001", "5", "12", "300"),
        ("1", "20160420120000", "5", "11", "200.5"),
        ("2", "20160426235959", "6", "12", "1"),
    ]
    text = "".join(mark.join(row) + "\n" for row in rows)
    room("app-usage", {"App_usage_trace.txt": text, "App2Category.txt": "11\t3\n12\t8\n"})
    world = dataset("app-usage")
    assert counts(world) == (2, 2, 3)
    assert world.items.tolist() == [0, 1, 1]
    assert world.context is not None
    assert world.context[:, 1].tolist() == [200.5, 300, 1]
    assert field(world, "category").values == ("3", "8")


CITY = "user_id\tvenue_id\ttype\tutc\n"


def test_foursquare_joins_the_cities(room):
    rome = "5\tv1\tGym\tTue Apr 03 18:20:27 +0000 2012\n5\tv2\tBar\tTue Apr 03 18:20:26 +0000 2012\n"
    pisa = '5\tv3\t"B"ar\tTue Apr 03 18:20:28 +0000 2012\n6\tv3\t"B"ar\tTue Apr 03 18:20:29 +0200 2012\n'
    place = room("foursquare-italy", {"Rome.tsv.gz": CITY + rome, "Pisa.tsv": CITY + pisa})
    world = dataset("foursquare-italy")
    assert counts(world) == (2, 3, 4)
    assert world.items.tolist() == [1, 0, 2, 2]
    assert field(world, "city").values == ("Pisa", "Rome")
    assert world.times is not None
    assert world.times[3] - world.times[2] == 1 - 7200
    assert counts(dataset("foursquare-italy", place / "Rome.tsv.gz")) == (1, 2, 2)
    (place / "Oslo.tsv").write_text("user_id\tvenue\n")
    with pytest.raises(DataError, match=r"must have the columns user_id, venue_id, type, utc; it lacks"):
        dataset("foursquare-italy")


def test_foursquare_picks_a_country_from_the_owners_files(room):
    events = "1\tv1\tTue Apr 03 18:00:06 +0000 2012\t60\n1\tv2\tTue Apr 03 18:00:07 +0000 2012\t60\n"
    files = {
        "dataset_TIST2015_Checkins.txt": events,
        "dataset_TIST2015_POIs.txt": "v1\t1.0\t2.0\tGym\tBR\nv2\t1.0\t2.0\tBar\tUS\n",
    }
    room("foursquare-brazil", files)
    assert counts(dataset("foursquare-brazil")) == (1, 1, 1)
    assert counts(dataset("foursquare-brazil", country="US")) == (1, 1, 1)
    with pytest.raises(DataError, match="no venue with the country 'XX'; countries are two letters"):
        dataset("foursquare-brazil", country="XX")


def moocs(*users):
    line = lambda user, views: {  # noqa: E731
        "id": user,
        "activity": [
            {"course_id": "C", "video_id": v, "watching_count": 1, "local_watching_time": s, "local_start_time": t}
            for v, s, t in views
        ],
    }
    return "".join(json.dumps(line(*user)) + "\n" for user in users)


def test_mooccube_has_schools_as_silos(room):
    day = "2019-05-{:02} 10:00:00".format
    act = moocs(
        ("U_1", [("V_1", 301, day(2)), ("V_2", 900, day(1)), ("V_3", 900, day(3)), ("V_3", 300, day(4))]),
        ("U_2", [("V_3", 1000.5, day(1)), ("V_1", 400, None)]),
        ("U_3", []),
    )
    room(
        "mooccube",
        {
            "additional_information/user_video_act.json": act,
            "relations/course-video.json": "C_1\tV_1\nC_1\tV_2\nC_2\tV_3\n",
            "relations/school-course.json": "S_A\tC_1\nS_B\tC_2\n",
            "relations/video-concept.json": "V_1\tK_x\nV_1\tK_y\nV_3\tK_x\n",
        },
    )
    world = dataset("mooccube")
    assert counts(world) == (2, 3, 4)
    assert world.users == ["U_1", "U_2"]
    assert world.silo is not None
    assert [world.silo_names[k] for k in world.silo] == ["S_A", "S_B"]  # pyright: ignore
    assert world.items.tolist() == [1, 0, 2, 2]
    assert field(world, "concepts").values == ("K_x", "K_y")
    assert "1 views without a time left out." in world.notes
    assert "1 users outside the 1 largest schools left out." in dataset("mooccube", schools=1).notes
    with pytest.raises(DataError, match="must hold views longer than 5000 seconds, and holds none"):
        dataset("mooccube", longer=5000)


def test_a_dataset_that_is_not_there(room, tmp_path):
    with pytest.raises(DataError, match=r"Dataset 'ml-1m' must be at .* nothing is there; `tacit data get ml-1m`"):
        dataset("ml-1m")
    with pytest.raises(DataError, match="nothing is there"):
        dataset("ml-1m", tmp_path / "elsewhere")
    room("ml-1m", {"README": "hello"})
    with pytest.raises(DataError, match=r"needs the file ratings.dat \(or .gz\) in"):
        dataset("ml-1m")
    room("ml-1m", {**LATIN, "ratings.dat": "1::10::5\n"})
    with pytest.raises(
        DataError, match="must hold user_id::item_id::rating::timestamp in each line, got '1::10::5' in line 1"
    ):
        dataset("ml-1m")


def test_a_wrong_name_gives_the_nearest():
    with pytest.raises(DataError, match="has no dataset 'ml-1n'; did you mean 'ml-1m'"):
        dataset("ml-1n")


def test_the_data_folder_is_in_the_working_directory_by_default(monkeypatch):
    monkeypatch.delenv("TACIT_DATA", raising=False)
    assert str(data_folder()) == "data"


def test_a_dataset_of_your_own_can_be_registered(monkeypatch):
    monkeypatch.setattr(datasets, "_REGISTERED", {})
    board = Dataset.synthetic("board", "even and odd", lambda size=6: checkerboard(size)[0])
    register_dataset(board)
    assert "board" in dataset_names()
    assert about_dataset("board").present
    assert len(dataset("board", size=8)) == 8
    with pytest.raises(DataError, match="already is a dataset 'board'"):
        register_dataset(board)
    with pytest.raises(DataError, match="is made by this package and takes no path"):
        dataset("board", "somewhere")


@pytest.mark.parametrize("name", dataset_names())
def test_every_dataset_states_its_terms(name):
    entry: Dataset = about_dataset(name)
    assert entry.about
    assert entry.terms
    assert entry.built_in or entry.cite
    assert entry.built_in or entry.needs or entry.page.startswith("http")
    assert all(file.sha256 is None or len(file.sha256) == 64 for file in entry.files)


@pytest.mark.parametrize("name", [name for name in dataset_names() if not about_dataset(name).built_in])
def test_every_public_dataset_reads_its_sample(room, name):
    entry = about_dataset(name)
    for part in entry.needs or (name,):
        assert about_dataset(part).sample, f"{part} has no sample to test its reader"
        room(part, about_dataset(part).sample)
    assert entry.present
    log = dataset(name)
    assert len(log) >= 2
    assert log.items.size >= 2
    assert log.catalog.n_items >= 2


@pytest.mark.parametrize("name", [name for name in dataset_names() if about_dataset(name).built_in])
def test_every_synthetic_dataset_is_determined_by_its_seed(name):
    one, same, other = (dataset(name, users=24, seed=seed) for seed in (0, 0, 1))
    assert about_dataset(name).present
    assert len(one) == 24
    assert one.digest == same.digest != other.digest


@pytest.mark.parametrize("folder", [sources, synthetic])
def test_every_file_is_a_dataset_or_begins_with_an_underscore(folder):
    for path in Path(folder.__file__).parent.glob("[!_]*.py"):
        module = importlib.import_module(f"{folder.__name__}.{path.stem}")
        assert {entry.name for entry in module.DATASETS} <= set(dataset_names()), path


def test_a_new_file_is_found_by_being_there(monkeypatch, tmp_path):
    (tmp_path / "toys.py").write_text(
        "from tacit.lab.data.datasets import Dataset\n"
        "from tacit.lab.data.synthetic.small import checkerboard\n"
        "DATASETS = (Dataset.synthetic('toy', 'a board', lambda users=6, seed=0: checkerboard(users)[0]),)\n"
    )
    (tmp_path / "_helper.py").write_text("raise RuntimeError('a helper is not imported')\n")
    monkeypatch.setattr(synthetic, "__path__", [*synthetic.__path__, str(tmp_path)])
    datasets._shipped.cache_clear()
    try:
        assert len(dataset("toy", users=8)) == 8
    finally:
        datasets._shipped.cache_clear()


def test_a_former_name_is_accepted_with_a_warning():
    with pytest.warns(RenamedWarning, match="The dataset 'tastes' is now called 'groups'"):
        old = dataset("tastes", users=12)
    assert old.digest == dataset("groups", users=12).digest
    with pytest.warns(RenamedWarning):
        assert open_log("tastes", 12, 0).digest == old.digest
    assert "tastes" not in dataset_names()


REAL = {
    "ml-1m": ("ratings.dat", 6_040, 3_706, 1_000_209),
    "ml-latest-small": ("ratings.csv", 671, 9_066, 100_004),
    "movietweetings": ("ratings.dat", 21_081, 12_611, 141_695),
}


@pytest.mark.parametrize("name", REAL)
def test_real_counts(name):
    if not about_dataset(name).present:
        pytest.skip(f"{name} is not in {data_folder()}; set TACIT_DATA")
    file, *known = REAL[name]
    found = counts(dataset(name))
    lines = read_bytes(find_file(name, data_folder() / name, file)).count(b"\n")
    assert found[2] == lines - file.endswith(".csv")
    if found[2] == known[2]:  # owners publish other editions too
        assert found == tuple(known)


def test_real_check_ins_of_italy():
    if not about_dataset("foursquare-italy").present:
        pytest.skip(f"foursquare-italy is not in {data_folder()}; set TACIT_DATA")
    assert dataset("foursquare-italy").items.size == 89_616
    world = dataset("foursquare-italy", duplicates="latest", on_few="drop", min_events=20)
    assert (len(world), world.items.size) == (1_353, 66_971)
    assert int((world.lengths - np.floor(0.2 * world.lengths)).sum()) == 54_088


def test_real_likes_of_movielens_1m():
    if not about_dataset("ml-1m").present:
        pytest.skip(f"ml-1m is not in {data_folder()}; set TACIT_DATA")
    labels = dataset("ml-1m").labels
    assert labels is not None
    assert int((labels > 3).sum()) == 575_281
