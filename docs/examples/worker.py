"""A job in two phases under a lease, with a heartbeat from a second connection."""
# prints: printing a label; shipped once; completed
import json
import threading
import uuid
from contextlib import contextmanager

try:
    import psycopg
except ImportError:
    import psycopg2 as psycopg

LEASE = 30      # seconds


class Refused(Exception):
    """The other side said no: it is known that nothing has happened."""


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
            try:
                self.connection.rollback()
            except psycopg.Error:
                pass        # the connection is gone; report the error that came first
            raise

    def claim(self):
        with self.transaction() as cursor:
            cursor.execute("""SELECT outcome, checkpoint FROM idem_claim(%s, %s, %s, request => %s::jsonb,
                                  lease => make_interval(secs => %s), token => %s, owner => 'example worker')""",
                           (*self.identity, self.request, LEASE, self.token))
            return cursor.fetchone()

    def beat(self):
        """Until told to stop: renews the lease. Must not use the connection that does the work."""
        connection = None
        pause = LEASE / 3
        while not self.stop.wait(pause):
            try:
                if connection is None:
                    connection = psycopg.connect("")
                    connection.autocommit = True
                with connection.cursor() as cursor:
                    cursor.execute("SELECT idem_renew(%s, %s, %s, token => %s)", (*self.identity, self.token))
                pause = LEASE / 3
            except psycopg.Error as error:
                if error.diag.sqlstate in ("IDM02", "IDM04", "IDM10"):
                    break       # no longer ours: the next guarded transaction of the worker will say so
                if connection is not None:
                    connection.close()
                connection = None       # says nothing about the claim: connect again, soon
                pause = 1
        if connection is not None:
            connection.close()

    def reached(self, checkpoint, progress):
        """Records a recovery point: once, also if it is called again after a lost answer."""
        with self.transaction() as cursor:
            cursor.execute("SELECT idem_guard(%s, %s, %s, token => %s)", (*self.identity, self.token))     # first
            cursor.execute("SELECT checkpoint FROM idem_lookup(%s, %s, %s)", self.identity)
            if cursor.fetchone()[0] == checkpoint:
                return
            # business writes of this phase would stand here
            cursor.execute("SELECT idem_checkpoint(%s, %s, %s, token => %s, checkpoint => %s, progress => %s::jsonb)",
                           (*self.identity, self.token, checkpoint, json.dumps(progress)))

    def settle(self, work):
        with self.transaction() as cursor:
            cursor.execute("SELECT idem_guard(%s, %s, %s, token => %s)", (*self.identity, self.token))     # first
            work(cursor)
            cursor.execute("SELECT idem_complete(%s, %s, %s, token => %s)", (*self.identity, self.token))

    def release(self, error):
        with self.transaction() as cursor:
            cursor.execute("SELECT idem_release(%s, %s, %s, token => %s, error => %s)",
                           (*self.identity, self.token, error))


def print_label(key):
    """Something outside. Takes a key that is the same in every attempt; raises Refused if it did nothing."""
    print("printing a label")
    return {"label": 17}


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
            if checkpoint is None:      # else an earlier attempt got that far
                label = print_label(json.dumps(job.identity))       # outside any transaction
                job.reached("label printed", label)
                job.reached("label printed", label)     # as after a lost answer: does nothing
            job.settle(ship)
        except Refused as error:
            job.release(str(error))     # after any other error nothing is known: the lease runs out
            raise
        finally:
            job.stop.set()
            heart.join()
    print(job.claim()[0])
