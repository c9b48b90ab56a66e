"""A job in two phases under a lease, with a heartbeat from a second connection."""
# prints: printing a label; shipped once; completed
import json
import threading
import time
import uuid
from contextlib import contextmanager

try:
    import psycopg
except ImportError:
    import psycopg2 as psycopg

LEASE = 30      # seconds


class Job:
    def __init__(self, account, action, key, request):
        self.identity = (account, action, key)
        self.request = json.dumps(request)
        self.token = str(uuid.uuid4())      # our own, so that a claim whose answer got lost can be repeated
        self.connection = psycopg.connect("")
        self.stop = threading.Event()

    @contextmanager
    def transaction(self):
        try:
            with self.connection.cursor() as cursor:
                yield cursor
            self.connection.commit()
        except BaseException:
            self.connection.rollback()
            raise

    def claim(self):
        with self.transaction() as cursor:
            cursor.execute("""SELECT outcome, checkpoint FROM idem_claim(%s, %s, %s, request => %s::jsonb,
                                  lease => make_interval(secs => %s), token => %s, owner => 'example worker')""",
                           (*self.identity, self.request, LEASE, self.token))
            return cursor.fetchone()

    def beat(self):
        """Until told to stop: renews the lease. Must not use the connection that does the work."""
        connection = psycopg.connect("")
        connection.autocommit = True
        cursor = connection.cursor()
        while not self.stop.wait(LEASE / 3):
            try:
                cursor.execute("SELECT idem_renew(%s, %s, %s, token => %s)", (*self.identity, self.token))
            except psycopg.Error:
                return      # no longer ours: the next guarded transaction of the worker will say so
        connection.close()

    def phase(self, name, done, work):
        """Runs `work` and records checkpoint `name` with it: once, also if it is called again after a lost answer."""
        with self.transaction() as cursor:
            cursor.execute("SELECT idem_guard(%s, %s, %s, token => %s)", (*self.identity, self.token))     # first
            cursor.execute("SELECT checkpoint FROM idem_lookup(%s, %s, %s)", self.identity)
            if cursor.fetchone()[0] in done:
                return
            work(cursor)
            cursor.execute("SELECT idem_checkpoint(%s, %s, %s, token => %s, checkpoint => %s)",
                           (*self.identity, self.token, name))

    def settle(self, work):
        with self.transaction() as cursor:
            cursor.execute("SELECT idem_guard(%s, %s, %s, token => %s)", (*self.identity, self.token))     # first
            work(cursor)
            cursor.execute("SELECT idem_complete(%s, %s, %s, token => %s)", (*self.identity, self.token))

    def release(self, error):
        with self.transaction() as cursor:
            cursor.execute("SELECT idem_release(%s, %s, %s, token => %s, error => %s)",
                           (*self.identity, self.token, error))


def print_label(cursor):
    print("printing a label")      # a call to something outside, which takes the operation's key as its own


def ship(cursor):
    cursor.execute("INSERT INTO payments (account, amount) VALUES ('acme', 7)")
    print("shipped once")


if __name__ == "__main__":
    job = Job("acme", "ship", "order-7", {"order": 7})
    outcome, checkpoint = job.claim()
    if outcome in ("claimed", "recovered"):
        heart = threading.Thread(target=job.beat, daemon=True)
        heart.start()
        try:
            job.phase("label printed", {"label printed"}, print_label)
            job.phase("label printed", {"label printed"}, print_label)      # as after a lost answer: does nothing
            job.settle(ship)
        except Exception as error:
            job.release(str(error))
            raise
        finally:
            job.stop.set()
            heart.join()
    print(job.claim()[0])
