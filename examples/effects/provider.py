"""A payment provider to try things on: charges cards, remembers idempotency keys for a while, and fails as told.

    POST /charges            Idempotency-Key: KEY   {"operation": "shop/17", "amount": 25}   201 charged, 402 declined
                             409 while another request with this key is being worked on
    GET  /charges?key=KEY    what became of the requests with this key, for ever
    GET  /books              {"requests": POSTs so far, "charges": {operation: how often it was charged}}
    POST /faults             {"drop": 0.1, ...}: how often each happens from now on, from 0 to 1
         refuse: answers 503 and charges nothing      busy: the same with 429      decline: 402
         drop: charges, and closes without an answer
         before, after: waits so many seconds (not how often) before it charges, and after that

With --webhook it also tells what became of each request: POST URL {"key": ..., "charge": ..., "status": ...}, until answered with 2xx.
"""
import argparse
import json
import random
import sqlite3
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

SCHEMA = """
CREATE TABLE IF NOT EXISTS charges (id INTEGER PRIMARY KEY, key TEXT NOT NULL, operation TEXT NOT NULL, amount INTEGER NOT NULL,
                                    status TEXT NOT NULL, made_at REAL NOT NULL, told INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS charges_by_key ON charges (key);
CREATE TABLE IF NOT EXISTS requests (at REAL NOT NULL);
"""


class Books:
    """What the provider knows, in a file: a crash forgets nothing."""

    def __init__(self, file: str, window: float) -> None:
        self.window = window
        self.working: set[str] = set()      # keys
        self.lock = threading.Lock()
        self.file = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self.file.row_factory = sqlite3.Row
        self.file.executescript("PRAGMA journal_mode = WAL;" + SCHEMA)

    def rows(self, sql: str, *arguments: Any) -> list[dict[str, Any]]:
        with self.lock:
            return [dict(row) for row in self.file.execute(sql, arguments)]

    def begin(self, key: str) -> bool:
        """False: another request with this key has not come to its charge yet."""
        with self.lock:
            fresh = key not in self.working
            self.working.add(key)
        return fresh

    def charge(self, key: str, operation: str, amount: int, decline: bool) -> tuple[int, dict[str, Any]]:
        """Inside the window a key gets the answer it got before; after that it is as good as new."""
        with self.lock:
            self.working.discard(key)
            now = time.time()
            row = self.file.execute("SELECT * FROM charges WHERE key = ? AND made_at > ?", (key, now - self.window)).fetchone()
            if row is None:
                row = self.file.execute("INSERT INTO charges (key, operation, amount, status, made_at) VALUES (?, ?, ?, ?, ?) RETURNING *",
                                        (key, operation, amount, "declined" if decline else "succeeded", now)).fetchone()
            elif (row["operation"], row["amount"]) != (operation, amount):
                return 422, {"error": "this key came with another request"}
        return (201 if row["status"] == "succeeded" else 402), answer(row)


def answer(row: Any) -> dict[str, Any]:
    return {"charge": f"ch_{row['id']}", "amount": row["amount"], "status": row["status"]}


class Provider(BaseHTTPRequestHandler):
    books: Books
    faults: dict[str, float] = {}

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        if self.path == "/faults":
            Provider.faults = body
            return self.send(200, body)
        if self.path != "/charges" or not (key := self.headers.get("Idempotency-Key")):
            return self.send(400, {"error": "POST /charges, with an Idempotency-Key"})
        self.books.rows("INSERT INTO requests VALUES (?)", time.time())
        if self.happens("refuse"):
            return self.send(503, {"error": "try later"})
        if self.happens("busy"):
            return self.send(429, {"error": "too many requests"})
        if not self.books.begin(key):
            return self.send(409, {"error": "a request with this key is being worked on"})
        time.sleep(self.faults.get("before", 0))
        status, result = self.books.charge(key, body["operation"], body["amount"], self.happens("decline"))
        time.sleep(self.faults.get("after", 0))
        if not self.happens("drop"):
            self.send(status, result)

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/charges":
            found = self.books.rows("SELECT * FROM charges WHERE key = ? ORDER BY id", parse_qs(url.query)["key"][0])
            return self.send(200, {"charges": [answer(row) for row in found]})
        charges = self.books.rows("SELECT operation, count(*) FROM charges WHERE status = 'succeeded' GROUP BY operation")
        self.send(200, {"requests": self.books.rows("SELECT count(*) AS n FROM requests")[0]["n"],
                        "charges": {row["operation"]: row["count(*)"] for row in charges}})

    def happens(self, fault: str) -> bool:
        return random.random() < self.faults.get(fault, 0)

    def send(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        pass


def tell(books: Books, url: str) -> None:
    """The webhook: what was not taken is told again."""
    while True:
        for row in books.rows("SELECT * FROM charges WHERE NOT told ORDER BY id LIMIT 100"):
            text = json.dumps({"key": row["key"], **answer(row)}).encode()
            try:
                urllib.request.urlopen(urllib.request.Request(url, text, {"Content-Type": "application/json"}), timeout=10).close()
                books.rows("UPDATE charges SET told = 1 WHERE id = ?", row["id"])
            except (urllib.error.URLError, OSError):
                pass
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--books", default="provider.db", help="its file")
    parser.add_argument("--window", type=float, default=86400, help="seconds for which it remembers a key")
    parser.add_argument("--webhook", help="URL")
    options = parser.parse_args()
    Provider.books = Books(options.books, options.window)
    if options.webhook:
        threading.Thread(target=tell, args=(Provider.books, options.webhook), daemon=True).start()
    ThreadingHTTPServer(("127.0.0.1", options.port), Provider).serve_forever()


if __name__ == "__main__":
    main()
