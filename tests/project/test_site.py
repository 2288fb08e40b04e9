"""The pages as a site: it builds without a warning, every link inside it leads somewhere, and it loads nothing from elsewhere."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


class Addresses(HTMLParser):
    """What a page of the site loads, where its links lead, and the places in it."""

    def __init__(self, path):
        super().__init__()
        self.loads, self.leads, self.places = [], [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.places |= {given[name] for name in ("id", "name") if given.get(name)}
        found = [given[name] for name in ("src", "srcset", "href") if given.get(name)]
        (self.leads if tag == "a" else self.loads).extend(found)


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_leads_nowhere_else(tmp_path):
    pytest.importorskip("sphinx", reason="the site needs the `docs` extra")
    words = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-E", "-q", "-d", str(tmp_path / "cache")]
    built = subprocess.run([*words, str(DOCS), str(tmp_path / "site")], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    site = {path.resolve(): Addresses(path) for path in (tmp_path / "site").rglob("*.html")}
    for path, page in site.items():
        assert not [one for one in page.loads if re.match(r"(https?:)?//", one)], path.name
        for lead in (*page.leads, *page.loads):
            address, _, place = lead.partition("#")
            target = (path.parent / unquote(address.split("?")[0])).resolve() if address else path
            if not re.match(r"[a-z]+:", lead):
                assert target.exists(), f"{path.name} leads to {lead}"
                assert not place or target not in site or unquote(place) in site[target].places, f"{path.name}: {lead}"
    for style in (tmp_path / "site").rglob("*.css"):
        assert not re.search(r"""(url\(|@import)\s*['"]?(https?:)?//""", style.read_text(encoding="utf-8")), style.name
