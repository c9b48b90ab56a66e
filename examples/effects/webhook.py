"""Where the provider calls back: reports what it says about an effect, whoever made it and whatever became of that."""
import argparse
import json
import uuid
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import psycopg2
from psycopg2.extras import Json

REPORT = {"succeeded": "confirmed", "declined": "rejected"}


class Webhook(BaseHTTPRequestHandler):
    database: str

    def do_POST(self) -> None:
        """A real one checks the provider's signature first."""
        try:
            event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            key = str(uuid.UUID(event.pop("key")))
            said = REPORT[event["status"]]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            self.log_error("not an event: %r", error)
            return self.answer(400)
        try:
            self.answer(200 if report(self.database, key, said, event) else 404)
        except psycopg2.Error as error:
            # IDM04 contradicts what was reported before: somebody has to look at it. All else: the provider tries again.
            self.log_error("%s: %s", key, error)
            self.answer(409 if error.pgcode == "IDM04" else 503)

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.end_headers()

    def log_request(self, *_: Any) -> None:
        pass


def report(dsn: str, key: str, state: str, response: dict[str, Any]) -> bool:
    with closing(psycopg2.connect(dsn)) as database, database, database.cursor() as cursor:
        cursor.execute("SELECT idem_effect_report(%s, %s, %s)", (key, state, Json(response)))
        return cursor.fetchone()[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8081)
    parser.add_argument("--database", default="", help="connection string; default: PGHOST and so on")
    options = parser.parse_args()
    Webhook.database = options.database
    HTTPServer(("127.0.0.1", options.port), Webhook).serve_forever()


if __name__ == "__main__":
    main()
