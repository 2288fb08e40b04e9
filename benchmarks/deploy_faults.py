"""What comes of killing parts of a deployment: real processes, kill −9, four rounds each time. Minutes.

    python benchmarks/deploy_faults.py [--only node link-8] [--out FILE]

What it finds goes into results/faults.json and from there into docs/deploy.md.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from deploy_page import fill_page
from pages import RESULTS

from support.faults import FAULTS, PLAN, play

OUT = RESULTS / "faults.json"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", nargs="*", choices=list(FAULTS), default=list(FAULTS))
    options.add_argument("--out", type=Path, default=OUT)
    given = options.parse_args()
    found = {row["name"]: row for row in json.loads(given.out.read_text())["faults"]} if given.out.exists() else {}
    for name in given.only:
        with tempfile.TemporaryDirectory() as folder:
            row = play(Path(folder), name)
        found[name] = {"name": name, **row, "load_average": os.getloadavg()[0]}
        print(json.dumps(found[name]), flush=True)
        rows = [found[one] for one in FAULTS if one in found]
        kept = {"plan": PLAN.name, "nodes": [1, 8], "cores": os.cpu_count(), "faults": rows}
        given.out.write_text(json.dumps(kept, indent=2) + "\n")
    if given.out == OUT:
        fill_page()


if __name__ == "__main__":
    main()
