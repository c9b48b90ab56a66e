"""An HTTP endpoint that charges a card at a payment provider, under a lease. With psycopg 3 and with psycopg2."""
# prints: 504 {'error': 'not known yet'}; 409 {'error': 'being carried out'}; 201 {'charge': 'ch_1', 'payment': 1}; 201 {'charge': 'ch_1', 'payment': 1}; 402 {'error': 'card declined'}; 400 {'error': 'bad Idempotency-Key'}; charges made: 1
import json
import time
import uuid
from contextlib import contextmanager

try:
    import psycopg
except ImportError:
    import psycopg2 as psycopg

LEASE = 15      # seconds: more than the provider's timeout
ACTION = "POST /payments"


class Declined(Exception):
    """The provider's final no: nothing was charged."""


class Provider:
    """A stub of one that deduplicates by a key of the client, as many do."""

    def __init__(self):
        self.charges = {}
        self.lose_answer = False

    def charge(self, key, amount):
        if amount > 1000:
            raise Declined("card declined")
        charge = self.charges.setdefault(key, f"ch_{len(self.charges) + 1}")
        if self.lose_answer:
            self.lose_answer = False
            raise TimeoutError
        return charge


@contextmanager
def transaction(connection):
    try:
        with connection.cursor() as cursor:
            yield cursor
        connection.commit()
    except BaseException:
        try:
            connection.rollback()
        except psycopg.Error:
            pass        # the connection is gone; report the error that came first
        raise


def post_payment(connection, provider, account, key, request):
    """Answers with HTTP status, body, and further headers."""
    try:
        return charge_once(connection, provider, (account, ACTION, key), request)
    except psycopg.Error as error:
        if error.diag.sqlstate in ("IDM02", "IDM04", "IDM10"):      # we were too slow, and another attempt took over
            return 409, {"error": "being carried out"}, {"Retry-After": "1"}
        raise


def charge_once(connection, provider, operation, request):
    token = str(uuid.uuid4())
    try:
        with transaction(connection) as cursor:
            cursor.execute("""SELECT outcome, status, result, retry_after, checkpoint, progress
                                FROM idem_claim(%s, %s, %s, request => %s::jsonb, token => %s,
                                                lease => make_interval(secs => %s))""",
                           (*operation, json.dumps(request), token, LEASE))
            outcome, status, result, retry_after, checkpoint, progress = cursor.fetchone()
    except psycopg.Error as error:
        if error.diag.sqlstate in ("22023", "22001", "IDM07"):
            return 400, {"error": "bad Idempotency-Key"}, {}
        raise
    if outcome == "in_progress":
        return 409, {"error": "being carried out"}, {"Retry-After": str(retry_after)}
    if outcome == "mismatch":
        return 422, {"error": "key was used for another request"}, {}
    if outcome == "expired":
        return 410, {"error": "was carried out before"}, {}
    if outcome == "review":
        return 409, {"error": "under investigation"}, {}
    if outcome not in ("claimed", "recovered"):
        return status, result, {}

    if checkpoint == "charged":         # an earlier attempt got that far
        charge = progress["charge"]
    else:
        # The provider's key: the same in every attempt, and different for every operation.
        provider_key = str(uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(operation)))
        try:
            charge = provider.charge(provider_key, request["amount"])       # outside any transaction
        except Declined as error:
            body = {"error": str(error)}
            with transaction(connection) as cursor:
                cursor.execute("SELECT idem_fail(%s, %s, %s, result => %s::jsonb, status => 402, token => %s)",
                               (*operation, json.dumps(body), token))
            return 402, body, {}
        except (TimeoutError, ConnectionError):
            return 504, {"error": "not known yet"}, {}      # release nothing: the attempt after the lease asks again
        with transaction(connection) as cursor:
            cursor.execute("""SELECT idem_checkpoint(%s, %s, %s, token => %s, checkpoint => 'charged',
                                                     progress => %s::jsonb)""",
                           (*operation, token, json.dumps({"charge": charge})))

    with transaction(connection) as cursor:
        cursor.execute("SELECT idem_guard(%s, %s, %s, token => %s)", (*operation, token))      # first
        cursor.execute("INSERT INTO payments (account, amount) VALUES (%s, %s) RETURNING id",
                       (operation[0], request["amount"]))
        body = {"charge": charge, "payment": cursor.fetchone()[0]}
        cursor.execute("SELECT idem_complete(%s, %s, %s, result => %s::jsonb, status => 201, token => %s)",
                       (*operation, json.dumps(body), token))
    return 201, body, {}


if __name__ == "__main__":
    LEASE = 2       # so that the example is soon over
    connection = psycopg.connect("")
    provider = Provider()

    def post(key, amount):
        status, body, headers = post_payment(connection, provider, "acme", key, {"amount": amount})
        print(status, body)
        return headers

    provider.lose_answer = True
    post("k1", 10)
    time.sleep(int(post("k1", 10)["Retry-After"]))
    post("k1", 10)      # the provider recognizes its key
    post("k1", 10)      # from the record
    post("k2", 5000)
    post(" ", 10)
    print("charges made:", len(provider.charges))
