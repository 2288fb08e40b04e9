"""The book: the file that holds the rows of the bench. Written whole after every row, read by the page."""

import json
import math
from pathlib import Path
from typing import Any

from tacit.core.plan import Plan
from tacit.core.run_folder import plain, write_text
from tacit.errors import RunError
from tacit.lab.experiments.bench.logs import WAY, Place


class Book:
    """Rows by log, plan and seed."""

    def __init__(self, path: Path, size: str, rows: dict[str, dict[str, Any]]):
        self.path, self.size, self.rows = path, size, rows

    @classmethod
    def open(cls, path: Path, size: str) -> "Book":
        """The book a file holds, or a new one; a file of another size, or of something else, is refused."""
        if not path.exists():
            return cls(path, size, {})
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            rows, before = {_key(row): row for row in found["rows"]}, found["size"]
        except (OSError, ValueError, KeyError, TypeError):
            raise RunError(f"{path} holds no rows of the bench; name another file with --out.") from None
        if before != size:
            raise RunError(f"{path} holds rows of size {before}, these are {size}; name another file with --out.")
        return cls(path, size, rows)

    def holds(self, where: Place, plan: Plan, seed: int, limit: float | None = None) -> bool:
        """Whether the row is there, of this very plan on these very people; with more time than it had, it is tried again."""
        row = self.rows.get(f"{where.name}/{plan.name}/{seed}")
        if row is None or row.get("limit", math.inf) < (math.inf if limit is None else limit):
            return False
        return (row["digest"], row["people"]) == (plan.digest, where.log.digest)

    def write(self, row: dict[str, Any]) -> None:
        """Keep a row, at once."""
        self.rows[_key(row)] = row
        self.save()

    def save(self) -> None:
        """Write the file: one line a row, so that a change of a row is a change of a line."""
        head, rows = {**self.to_dict(), "rows": []}, self.to_dict()["rows"]
        lines = ",\n".join(json.dumps(plain(row), ensure_ascii=False, allow_nan=False) for row in rows)
        text = json.dumps(plain(head), ensure_ascii=False).removesuffix("[]}") + f"[\n{lines}\n]}}\n"
        write_text(self.path, text)

    def to_dict(self) -> dict[str, Any]:
        """Plain values: what asked, and every row in order."""
        rows = [self.rows[key] for key in sorted(self.rows)]
        return {"size": self.size, "protocol": WAY.name, "about": WAY.about, "rows": rows}


def _key(row: dict[str, Any]) -> str:
    return f"{row['data']}/{row['plan']}/{row['seed']}"
