"""Charges a card at a provider that may answer late, twice, or never, without ever charging twice.

    pay.py ACCOUNT AMOUNT KEY...

Says for each key: completed, failed, in progress (by another), review, or not known yet. Run it again for what is not completed or failed.
"""
import argparse
import json
import sys
import time
import urllib.error
import urllib.request
import uuid
from contextlib import closing
from typing import Any

import psycopg2
from psycopg2.extras import Json, NamedTupleCursor

ACTION = "pay"
NAME = "charge"     # of the effect within the operation

# Not now: timed out, this key is being worked on, too early, too many requests. It may have charged, or will.
NO_ANSWER = 408, 409, 425, 429


def call(database: Any, sql: str, *arguments: Any) -> Any:
    with database.cursor(cursor_factory=NamedTupleCursor) as cursor:
        cursor.execute(sql, arguments)
        return cursor.fetchone() if cursor.description else None


def claim(database: Any, operation: tuple[str, str, str], token: str, request: dict[str, Any], options: argparse.Namespace) -> Any:
    with database:      # a transaction: committed here, or undone by an exception
        return call(database, """SELECT outcome, replayed, result
                                   FROM idem_claim(%s, %s, %s, request => %s, token => %s, lease => make_interval(secs => %s))""",
                    *operation, Json(request), token, options.lease)


def intend(database: Any, operation: tuple[str, str, str], token: str, request: dict[str, Any], again: bool, options: argparse.Namespace) -> Any:
    """Before the provider is called, that it may have been called is on disk."""
    with database:
        return call(database, """SELECT state, downstream_key, response, EXTRACT(epoch FROM send_before - idem_now())::float AS seconds
                                   FROM idem_effect(%s, %s, %s, token => %s, name => %s, provider_window => make_interval(secs => %s),
                                                    request => %s, again => %s)""",
                    *operation, token, NAME, options.window, Json(request), again)


def ask(url: str, key: str, request: dict[str, Any], timeout: float) -> tuple[str, dict[str, Any]] | None:
    """What the provider says: confirmed or rejected, and its answer. None: we do not know."""
    http = urllib.request.Request(url + "/charges", json.dumps(request).encode(), {"Idempotency-Key": key, "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(http, timeout=timeout) as answer:
            return "confirmed", json.load(answer)
    except urllib.error.HTTPError as answer:
        if answer.code == 402:
            return "rejected", json.load(answer)
        if answer.code >= 500 or answer.code in NO_ANSWER:
            return None     # charged or not: only asking again, under the same key, tells
        raise               # our mistake
    except (OSError, ValueError, urllib.error.URLError):
        return None


def report(database: Any, key: str, state: str, response: dict[str, Any]) -> None:
    """A fact. It needs no token: who has lost the claim may still tell it."""
    with database:
        call(database, "SELECT * FROM idem_effect_report(%s, %s, %s)", key, state, Json(response))


def settle(database: Any, operation: tuple[str, str, str], token: str, state: str, response: dict[str, Any], key: str | None) -> str:
    """What the provider said, our own books, and the outcome: one transaction."""
    with database:
        if key is not None:
            call(database, "SELECT * FROM idem_effect_report(%s, %s, %s)", key, state, Json(response))
        if state == "confirmed":
            call(database, "INSERT INTO card_payments (account, key, charge) VALUES (%s, %s, %s)", operation[0], operation[2], response["charge"])
            call(database, "SELECT * FROM idem_complete(%s, %s, %s, result => %s, token => %s)", *operation, Json(response), token)
            return "completed"
        call(database, "SELECT * FROM idem_fail(%s, %s, %s, result => %s, status => 402, token => %s)", *operation, Json(response), token)
        return "failed"


def release(database: Any, operation: tuple[str, str, str], token: str) -> None:
    """Not: idem_fail. What was not answered may have happened, and a failure would be final."""
    with database:
        call(database, "SELECT * FROM idem_release(%s, %s, %s, token => %s)", *operation, token)


def pay(database: Any, account: str, key: str, amount: int, options: argparse.Namespace) -> str:
    operation, token = (account, ACTION, key), str(uuid.uuid4())
    request = {"operation": f"{account}/{key}", "amount": amount}
    outcome = claim(database, operation, token, request, options).outcome
    if outcome not in ("claimed", "recovered"):
        return outcome.replace("_", " ")
    again = False
    for _ in range(options.tries):
        before = time.monotonic()
        effect = intend(database, operation, token, request, again, options)
        again = False
        if effect.state == "unknown":       # too late to call again: ask the provider (reconcile.py), or wait for its webhook
            break
        if effect.state == "rejected" and effect.response is None:      # reported as absent: it has never heard of it
            again = True                    # then a new call, under a new key, does no harm
        elif effect.state != "call":
            return settle(database, operation, token, effect.state, effect.response, None)
        elif (left := effect.seconds - (time.monotonic() - before)) > 0:        # never after send_before
            if answer := ask(options.provider, effect.downstream_key, request, min(left, options.timeout)):
                try:
                    return settle(database, operation, token, *answer, effect.downstream_key)
                except psycopg2.Error as error:
                    if error.pgcode not in ("IDM02", "IDM04", "IDM10"):
                        raise
                    report(database, effect.downstream_key, *answer)        # another attempt has taken over: it will settle
                    return "in progress"
            time.sleep(options.pause)       # no answer: not a failure, and no reason to give up
    release(database, operation, token)
    return "not known yet"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("account")
    parser.add_argument("amount", type=int)
    parser.add_argument("keys", nargs="+", metavar="key")
    parser.add_argument("--database", default="", help="connection string; default: PGHOST and so on")
    parser.add_argument("--provider", default="http://127.0.0.1:8080", help="URL")
    parser.add_argument("--window", type=float, default=86400, help="seconds for which the provider remembers a key: never more than it says")
    parser.add_argument("--lease", type=float, default=60, help="seconds; longer than all tries take")
    parser.add_argument("--timeout", type=float, default=10, help="seconds for an answer of the provider")
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--pause", type=float, default=1, help="seconds between two tries")
    options = parser.parse_args()
    with closing(psycopg2.connect(options.database)) as database:
        for key in options.keys:
            try:
                print(key, pay(database, options.account, key, options.amount, options), sep=": ", flush=True)
            except psycopg2.Error as error:
                if error.pgcode not in ("IDM02", "IDM04", "IDM10"):
                    raise
                print(key, "in progress", sep=": ", flush=True)       # too slow: another attempt has taken over


if __name__ == "__main__":
    sys.exit(main())
