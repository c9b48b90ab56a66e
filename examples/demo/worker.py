"""A worker of the demo: carries out one job in two phases, each a transaction of its own, under a lease.

It stops after each step until told to go on (a line on its input): so the demo chooses where it dies or stalls."""
import sys

import psycopg2
from psycopg2.extras import Json


def step(text):
    print(text, flush=True)
    if not sys.stdin.readline():
        sys.exit()


name, account, key = sys.argv[1:]
job = {"account": account, "key": key}
amount = 25
connection = psycopg2.connect(dbname="demo", user="app", application_name=name)


def call(sql, **arguments):
    with connection.cursor() as cursor:
        cursor.execute(sql, {**job, **arguments})
        return cursor.fetchone() if cursor.description else None


with connection:    # one transaction
    outcome, attempt, token, checkpoint, progress = call(
        """SELECT outcome, attempt, token, checkpoint, progress
             FROM idem_claim(account => %(account)s, action => 'invoice', key => %(key)s, request => %(request)s,
                             lease => '10 minutes', owner => %(owner)s)""",
        request=Json({"amount": amount}), owner=name)
job["token"] = token
step(f"{outcome}, attempt {attempt}, checkpoint {checkpoint or 'none'}")

if checkpoint is None:
    with connection:
        invoice, = call("""INSERT INTO invoices (account, key, amount) VALUES (%(account)s, %(key)s, %(amount)s)
                           RETURNING id""", amount=amount)
        call("""SELECT * FROM idem_checkpoint(account => %(account)s, action => 'invoice', key => %(key)s,
                                              token => %(token)s, checkpoint => 'written', progress => %(progress)s)""",
             progress=Json({"invoice": invoice}))
    step("written")
else:
    invoice = progress["invoice"]    # an earlier attempt got that far

try:
    with connection:
        # A worker had better call idem_guard here first, and be refused before it does anything. This one does not, to
        # show that a refusal at the end takes the whole transaction along.
        call("UPDATE accounts SET balance = balance - %(amount)s WHERE account = %(account)s", amount=amount)
        call("UPDATE invoices SET paid = true WHERE id = %(invoice)s", invoice=invoice)
        step("charged, not committed")
        call("""SELECT * FROM idem_complete(account => %(account)s, action => 'invoice', key => %(key)s,
                                            token => %(token)s, result => %(result)s)""",
             result=Json({"invoice": invoice}))
    print("completed")
except psycopg2.DatabaseError as error:
    print("refused", error.pgcode)
