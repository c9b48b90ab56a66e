"""One payment in one transaction. Runs with psycopg 3 and with psycopg2."""
# prints: 201 {'payment': 1}; 201 {'payment': 1}; 422 {'error': 'key was used for another request'}; 400 {'error': 'no Idempotency-Key'}
import json

try:
    import psycopg
except ImportError:
    import psycopg2 as psycopg

CLAIM = """
    SELECT outcome, status, result, retry_after
      FROM idem_claim(%s, 'pay', %s, request => %s::jsonb, wait => '2 seconds')"""
COMPLETE = "SELECT idem_complete(%s, 'pay', %s, result => %s::jsonb, status => %s)"


def pay(connection, account, key, request):
    """Answers with HTTP status, body, and further headers."""
    if not key:
        return 400, {"error": "no Idempotency-Key"}, {}
    try:
        with connection.cursor() as cursor:
            cursor.execute(CLAIM, (account, key, json.dumps(request)))
            outcome, status, result, retry_after = cursor.fetchone()
            if outcome in ("claimed", "recovered"):
                cursor.execute("INSERT INTO payments (account, amount) VALUES (%s, %s) RETURNING id",
                               (account, request["amount"]))
                status, result = 201, {"payment": cursor.fetchone()[0]}
                cursor.execute(COMPLETE, (account, key, json.dumps(result), status))
        connection.commit()
    except BaseException:
        connection.rollback()       # nothing has happened: the next attempt is claimed again
        raise
    if outcome == "in_progress":
        return 409, {"error": "being carried out"}, {"Retry-After": str(retry_after)}
    if outcome == "mismatch":
        return 422, {"error": "key was used for another request"}, {}
    if outcome == "expired":
        return 410, {"error": "was carried out before"}, {}
    if outcome == "review":
        return 409, {"error": "under investigation"}, {}
    return status, result, {}


if __name__ == "__main__":
    connection = psycopg.connect("")
    for key, amount in ("k1", 10), ("k1", 10), ("k1", 11), (None, 10):
        print(*pay(connection, "acme", key, {"amount": amount})[:2])
