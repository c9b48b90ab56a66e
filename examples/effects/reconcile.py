"""Asks the provider about every effect whose fate is open, and reports what it says. Run it every few minutes."""
import argparse
import json
import sys
import urllib.parse
import urllib.request
from contextlib import closing
from typing import Any

import psycopg2
from psycopg2.extras import Json, NamedTupleCursor

REPORT = {"succeeded": "confirmed", "declined": "rejected"}


def open_effects(database: Any) -> list[Any]:
    with database, database.cursor(cursor_factory=NamedTupleCursor) as cursor:
        cursor.execute("""SELECT account, action, key, downstream_key FROM idem_effects
                           WHERE report IS NULL AND name = 'charge' ORDER BY first_sent_at LIMIT 1000""")
        return cursor.fetchall()


def look_up(url: str, key: str) -> tuple[str, dict[str, Any] | None]:
    """What the provider has in its books, not a repetition of the request."""
    with urllib.request.urlopen(f"{url}/charges?" + urllib.parse.urlencode({"key": key}), timeout=10) as answer:
        charges = json.load(answer)["charges"]
    return (REPORT[charges[-1]["status"]], charges[-1]) if charges else ("absent", None)


def report(database: Any, key: str, state: str, response: dict[str, Any] | None) -> bool:
    """False: absent, and it may still be under way. Ask again later."""
    with database, database.cursor() as cursor:
        cursor.execute("SELECT idem_effect_report(%s, %s, %s)", (key, state, Json(response) if response else None))
        return cursor.fetchone()[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", default="", help="connection string; default: PGHOST and so on")
    parser.add_argument("--provider", default="http://127.0.0.1:8080", help="URL")
    options = parser.parse_args()
    with closing(psycopg2.connect(options.database)) as database:
        failed = 0
        for effect in open_effects(database):
            name = f"{effect.account} {effect.action} {effect.key}"
            try:
                state, response = look_up(options.provider, effect.downstream_key)
                known = report(database, effect.downstream_key, state, response)
                print(f"{name}: {state if known else 'not in its books yet'}", flush=True)
            except (OSError, ValueError, LookupError, psycopg2.Error) as error:     # no answer, or not one that can be reported: next time
                if database.closed:
                    raise
                failed = 1
                print(f"{name}: {error!r}", file=sys.stderr, flush=True)
    return failed       # 1: look at what it said


if __name__ == "__main__":
    sys.exit(main())
