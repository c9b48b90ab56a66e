"""What the cases need to be played: words for what happens, checks, connections, a clock."""
import contextlib
import os
import sys
import textwrap
import time
from datetime import datetime, timedelta, timezone

import psycopg2
from psycopg2.extras import NamedTupleCursor


# ---- telling

plain = not sys.stdout.isatty() or "NO_COLOR" in os.environ
cases = []
broken = []


def paint(code, text):
    return text if plain else f"\033[{code}m{text}\033[0m"


def case(title):
    cases.append(title)
    print("\n" + paint("1", f"{len(cases)}. {title}"))


def tell(**lines):
    for label, text in lines.items():
        print(textwrap.fill(text, 110, initial_indent=f"   {label.replace('_', ' '):<10} ", subsequent_indent=" " * 14))


def text_of(result):
    """{"reservation": 1, "charged": 200} as: reservation 1, charged 200"""
    return ", ".join(f"{name} {result[name]}" for name in reversed(result)) if result else "nothing"


def check(what, holds):
    print(f"   {paint('32', 'ok        ') if holds else paint('1;31', 'BROKEN    ')} {what}")
    if not holds:
        broken.append(what)


# ---- talking to the server

def connect(user="app", **options):
    connection = psycopg2.connect(dbname="demo", user=user, cursor_factory=NamedTupleCursor, **options)
    connection.autocommit = True
    return connection


def rows(connection, sql, *arguments):
    with connection.cursor() as cursor:
        cursor.execute(sql, arguments)
        return cursor.fetchall() if cursor.description else []


admin = connect("postgres")


def wait_for(sql, count):
    """Polls until the query counts that many."""
    deadline = time.monotonic() + 60
    while rows(admin, sql)[0].count != count:
        if time.monotonic() > deadline:
            sys.exit(f"waited in vain: {sql}")
        time.sleep(0.01)


@contextlib.contextmanager
def clock_ahead(**by):
    """pg_idem's clock, for connections made meanwhile."""
    then = datetime.now(timezone.utc) + timedelta(**by)
    rows(admin, "ALTER DATABASE demo SET pg_idem.test_now = %s", then.isoformat())
    try:
        yield
    finally:
        rows(admin, "ALTER DATABASE demo RESET pg_idem.test_now")
