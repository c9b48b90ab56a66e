"""Plays the failure cases of retries against the demo server, and checks after each what must be true."""
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import psycopg2
from psycopg2.extras import Json

from outside import acknowledgement_lost, message_with_change
from proxy import Proxy
from stage import admin, broken, case, cases, check, clock_ahead, connect, paint, rows, tell, text_of, wait_for


def reserve(account, key, nights, connection=None):
    """One attempt: one statement, which claims the key, calls the handler, and records the outcome."""
    return rows(connection or connect(),
                """SELECT outcome, replayed, result, settled_as
                     FROM idem_run(account => %s, action => 'reserve', key => %s, request => %s,
                                   handler => 'reserve(jsonb)', wait => '1 minute')""",
                account, key, Json({"room": "sea view", "nights": nights}))[0]


def lookup(account, action, key):
    return rows(connect(), "SELECT * FROM idem_lookup(%s, %s, %s)", account, action, key)


def reservations(account, key):
    return rows(admin, "SELECT count(*) FROM reservations WHERE account = %s AND key = %s", account, key)[0].count


def balance(account):
    return rows(admin, "SELECT balance FROM accounts WHERE account = %s", account)[0].balance


class Worker:
    """worker.py as a process of its own."""

    def __init__(self, name):
        self.process = subprocess.Popen([sys.executable, os.path.join(os.path.dirname(__file__), "worker.py"),
                                         name, "ada", "invoice-1"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def says(self):
        return self.process.stdout.readline().strip()

    def goes_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.says()


# ---- the cases

def sixteen_at_once():
    case("Sixteen attempts arrive before any of them completes")
    with connect("postgres") as blocker, ThreadPoolExecutor(16) as pool:
        blocker.autocommit = False
        rows(blocker, "SELECT FROM rooms FOR UPDATE")       # keeps the first attempt busy until all have arrived
        attempts = [pool.submit(reserve, "ada", "key-1", 2) for _ in range(16)]
        wait_for("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 7433 AND NOT granted", 15)
        blocker.rollback()
        answers = [attempt.result() for attempt in attempts]
    fresh = [answer for answer in answers if not answer.replayed]
    tell(sent='16 clients at once: reserve "sea view" for ada, two nights, key-1',
         happened="one got the claim and ran; the server showed the other 15 waiting for it",
         got=f"{fresh[0].outcome}: {text_of(fresh[0].result)}; the other 15 the same, marked as replayed",
         why="a key has one owner at a time, and who waited is answered from the outcome the owner recorded")
    check("one attempt ran, 15 were replays of it", len(fresh) == 1)
    check("all 16 got the one outcome", all((a.outcome, a.result) == ("completed", fresh[0].result) for a in answers))
    check("one reservation for key-1", reservations("ada", "key-1") == 1)


def answer_lost():
    case("The operation commits, but the response never reaches the caller")
    with tempfile.TemporaryDirectory() as directory:
        proxy = Proxy(directory, os.environ["PGHOST"])
        connection = connect(host=directory)
        proxy.lose_next_answer = True
        try:
            reserve("ada", "key-2", 1, connection)
            error = "nothing"
        except psycopg2.OperationalError as lost:
            error = str(lost).splitlines()[0]
    before = lookup("ada", "reserve", "key-2")
    retry = reserve("ada", "key-2", 1)
    tell(sent="reserve one night, key-2, through a proxy that cuts the line between commit and answer",
         happened=f'the client got "{error}": it cannot know whether it has a room',
         retry=f"{retry.outcome}: {text_of(retry.result)}; replayed from the record",
         why="the outcome was recorded in the transaction that took the room: both are there, or neither is")
    check("the first attempt's answer was lost, and its outcome was on record before the retry",
          error != "nothing" and [row.state for row in before] == ["completed"])
    check("the retry is a replay of it", retry.replayed and retry.result == before[0].result)
    check("one reservation for key-2", reservations("ada", "key-2") == 1)


def same_key_other_request():
    case("The same key arrives with different inputs, or under a different account")
    first = reserve("ada", "key-3", 1)
    other = reserve("ada", "key-3", 7)
    bob = reserve("bob", "key-3", 1)
    tell(sent="ada reserves one night with key-3; then ada seven nights with key-3; then bob one night with key-3",
         got=f"{text_of(first.result)}; then {other.outcome}: {text_of(other.result)}; bob has {text_of(bob.result)}",
         why="the request's fingerprint is stored with the key, so another request cannot pass as a retry; "
             "a key counts within its account and action only")
    check("other inputs: mismatch, nothing revealed",
          (other.outcome, other.replayed, other.result, other.settled_as) == ("mismatch", False, None, None))
    check("other account: an operation of its own", not bob.replayed and bob.result != first.result)
    check("one reservation each", reservations("ada", "key-3") == 1 and reservations("bob", "key-3") == 1)


def too_late():
    case("A retry arrives after its operation record has expired")
    first = reserve("ada", "key-4", 1)
    with clock_ahead(days=4):
        retry = reserve("ada", "key-4", 1)
    tell(sent="reserve one night, key-4; the same again four days later (outcomes are kept for three)",
         got=f"{text_of(first.result)}; then {retry.outcome}, with the note that it was {retry.settled_as}",
         why="the payload may be forgotten, but that the key was used is remembered for 30 days more: "
             "the retry fails loudly instead of taking a second room")
    check("the late retry is answered as expired, and told that it had completed",
          (retry.outcome, retry.settled_as, retry.result) == ("expired", "completed", None))
    check("one reservation for key-4", reservations("ada", "key-4") == 1)


def worker_lost():
    case("A worker dies in mid-work, and another comes back after it was given up")
    opening = balance("ada")
    a = Worker("worker A")
    a_said = [a.says(), a.goes_on(), a.goes_on()]
    a.process.kill()
    a.process.wait()
    wait_for("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'worker A'", 0)
    early = rows(connect(), """SELECT outcome, holder
                                 FROM idem_claim('ada', 'invoice', 'invoice-1', request => '{"amount": 25}',
                                                 lease => '1 minute')""")[0]
    with clock_ahead(minutes=11):
        b = Worker("worker B")
        b_said = [b.says()]
    with clock_ahead(minutes=22):
        c = Worker("worker C")
        c_said = [c.says()]
    b_said += [b.goes_on(), b.goes_on()]
    after_b = balance("ada")
    c_said += [c.goes_on(), c.goes_on()]
    tell(sent="invoice ada: write the invoice (commit, with a checkpoint), then charge 25 (commit); lease: 10 minutes",
         worker_A=f"{'; '.join(a_said)}; killed with kill -9",
         meanwhile=f"somebody else asks before the lease is over: {early.outcome}, held by {early.holder}",
         worker_B=f"after the lease: {b_said[0]}; stalls, until its lease is over too",
         worker_C=c_said[0],
         B_again=f"wakes up, and goes on with its old token: {'; '.join(b_said[1:])}",
         C_again="; ".join(c_said[1:]),
         why="a lease ends by the clock, so nothing is ever stuck; its token is a fence, so who has lost the claim "
             "cannot commit anything under it")
    check("nobody takes over before the lease is over", early.outcome == "in_progress")
    check("the next attempts are recovered and start from the checkpoint, with no second invoice",
          (b_said[0], c_said[0]) == ("recovered, attempt 2, checkpoint written",
                                     "recovered, attempt 3, checkpoint written"))
    check("B's late transaction is refused (IDM02), the charge in it included",
          b_said[2] == "refused IDM02" and after_b == opening)
    check("C completed, and ada was charged once", c_said[-1] == "completed" and balance("ada") == opening - 25)


def forgot_to_settle():
    case("Code that forgets to record the outcome")
    connection = connect()
    connection.autocommit = False
    rows(connection, """SELECT outcome FROM idem_claim('ada', 'reserve', 'key-6',
                                                       request => '{"room": "sea view", "nights": 1}')""")
    rows(connection, "UPDATE rooms SET free = free - 1 WHERE room = 'sea view'")
    rows(connection, """INSERT INTO reservations (account, key, room, nights, price)
                        VALUES ('ada', 'key-6', 'sea view', 1, 100)""")
    try:
        connection.commit()
        code, message = None, "committed"
    except psycopg2.DatabaseError as error:
        code, message = error.pgcode, error.diag.message_primary
    left = reservations("ada", "key-6")
    retry = reserve("ada", "key-6", 1)
    tell(sent="begin; claim key-6; take the room; commit, without idem_complete",
         got=f"{code}: {message}",
         retry=f"by code that does it right, through idem_run: {retry.outcome}: {text_of(retry.result)}",
         why="had it committed, the retry would have found no outcome, and done it all again")
    check("the commit fails with IDM01, and nothing of it is left", code == "IDM01" and left == 0)
    check("the key is free: the retry is carried out, one reservation",
          not retry.replayed and reservations("ada", "key-6") == 1)


def seen_twice():
    case("A consumer gets the same message three times")

    def deliver(crash=False):
        connection = connect()
        connection.autocommit = False
        first = rows(connection, "SELECT idem_once('mailer', 'reservation-made', 'message-1')")[0].idem_once
        if first:
            rows(connection, "INSERT INTO mails VALUES ('message-1', 'Dear Ada, see you soon')")
        if not crash:
            connection.commit()
        connection.close()
        return first

    first, second, third = deliver(crash=True), deliver(), deliver()
    mails = rows(admin, "SELECT count(*) FROM mails")[0].count
    tell(sent="message-1; the consumer crashes before it commits; again; once more, as the acknowledgement got lost",
         got=f"idem_once says {first}, {second}, {third} (first time?)",
         why="that it was seen is recorded together with what was done about it")
    check("the crash lost nothing, the repetition did nothing", (first, second, third) == (True, True, False))
    check("one mail", mails == 1)


print("A small hotel that takes reservations, and what can go wrong between it and its clients.")
for play in sixteen_at_once, answer_lost, same_key_other_request, too_late, worker_lost, forgot_to_settle, seen_twice, \
        acknowledgement_lost, message_with_change:
    play()

print("\n" + paint("1", "What must be true after all that"))
for row in rows(admin, "SELECT invariant, holds FROM invariants"):
    check(row.invariant, row.holds)

if broken:
    sys.exit(f"\n{len(cases)} cases, {len(broken)} checks BROKEN")
print(f"\n{len(cases)} cases, all invariants hold")
