"""Takes messages from a RabbitMQ queue, and makes each take effect once, in the order of the queue.

A message is acknowledged to the broker only after its effect is committed. Where a consumer dies does not matter: the message is
delivered again, and idem_once_batch knows it. One that cannot be dealt with is dead-lettered; where the database is at fault, all wait.

The connection to the broker is never closed, only dropped. Closing it would cancel the consumer first: the next one would be given
what comes later, and only then what has gone back.
"""
import argparse
import hashlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pika
import psycopg2
from pika.exceptions import AMQPError

# What belongs to the message: SQLSTATE classes (cardinality, data, constraints, WITH CHECK OPTION, program limits, RAISE in PL/pgSQL),
# and what Python says of data that is not as it should be. Whatever else happens is not the message's fault.
POISON_CLASSES = "21", "22", "23", "44", "54", "P0"
POISON = ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError
READ_ONLY = "25006"
MISMATCH = "this id came with another body before"

stopping = False


class Stopped(Exception):
    """SIGTERM: what is not settled goes back to the queue."""


class Message(NamedTuple):
    tag: int                # the broker's, for the acknowledgement
    properties: Any
    body: bytes


# ---- the effect: your code

def handle(cursor: Any, message: Message) -> None:
    """Nothing but the database, or it may happen twice. Raises where the message cannot be dealt with."""
    headers = message.properties.headers
    cursor.execute("INSERT INTO received (message, aggregate, type, payload) VALUES (%s, %s, %s, %s)",
                   (message.properties.message_id, headers["aggregateid"], headers["type"], message.body.decode() or None))


# ---- once

def consume(database: Any, name: str, batch: list[Message]) -> list[Message]:
    """What is new takes effect, in one transaction with the record that it did. Returns the mismatches: an id seen with another body."""
    with database, database.cursor() as cursor:     # commits, or rolls back
        cursor.execute("SELECT key, verdict FROM idem_once_batch(account => %s, action => 'consume', keys => %s::text[], fingerprints => %s::bytea[])",
                       (name, [m.properties.message_id for m in batch], [hashlib.sha256(m.body).digest() for m in batch]))
        verdicts = dict(cursor.fetchall())
        mismatches = [m for m in batch if verdicts[m.properties.message_id] == "mismatch"]
        for m in batch:
            if verdicts[m.properties.message_id] == "first":
                verdicts[m.properties.message_id] = "duplicate"     # where it comes twice in the batch
                handle(cursor, m)
    return mismatches


def of_message(error: Exception) -> bool:
    if isinstance(error, psycopg2.Error):
        return (error.pgcode or "")[:2] in POISON_CLASSES
    return isinstance(error, POISON)


class Database:
    """A connection, and another one where it is lost. The messages stay here meanwhile, so that nobody overtakes them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.current: Any = None

    def connection(self) -> Any:
        if self.current is None or self.current.closed:
            # read-write: it waits for a primary
            self.current = psycopg2.connect(self.options.database, application_name=self.options.name, target_session_attrs="read-write")
        return self.current

    def drop(self) -> None:
        if self.current is not None:
            self.current.close()


def attempt(database: Database, channel: Any, batch: list[Message], options: argparse.Namespace) -> list[Message]:
    """As consume. Where no message is at fault (no privilege, disk full, lock timeout, serialization, ...), again and again, in place."""
    while not stopping:
        try:
            return consume(database.connection(), options.name, batch)
        except Exception as error:
            if of_message(error):
                raise
            if isinstance(error, psycopg2.DatabaseError) and error.pgcode in (None, READ_ONLY):
                database.drop()             # lost, or a primary no more
            log(options, f"{len(batch)} wait: {error!r}")
            rest(options.pause, channel.connection.sleep)
    raise Stopped


def work(database: Database, channel: Any, batch: list[Message], options: argparse.Namespace) -> None:
    try:
        dead = attempt(database, channel, batch, options)
    except Exception as error:
        if not of_message(error):
            raise
        for m in batch:         # one of them did it, and all is rolled back: each by itself
            work_alone(database, channel, m, options)
    else:
        settle(channel, batch, dead, MISMATCH, options)


def work_alone(database: Database, channel: Any, message: Message, options: argparse.Namespace) -> None:
    """Tried again where it is, so that those behind do not overtake it; given up after so many tries."""
    dead, why = [message], MISMATCH
    for n in range(options.tries):
        if n > 0:
            rest(options.pause, channel.connection.sleep)
        try:
            dead = attempt(database, channel, [message], options)
            break
        except Exception as error:
            if not of_message(error):
                raise
            why = repr(error)
            log(options, f"{message.properties.message_id}: {why}")
    settle(channel, [message], dead, why, options)


# ---- the broker

def settle(channel: Any, batch: list[Message], dead: list[Message], why: str, options: argparse.Namespace) -> None:
    for m in batch:
        if m in dead:
            log(options, f"{m.properties.message_id}: dead-lettered: {why}")
            channel.basic_reject(m.tag, requeue=False)      # to the dead-letter queue
        else:
            channel.basic_ack(m.tag)


def declare(channel: Any, options: argparse.Namespace) -> None:
    channel.exchange_declare(options.exchange, "topic", durable=True)
    channel.queue_declare(f"{options.name}.dead", durable=True)
    # One active consumer at a time keeps the order; the others stand by.
    channel.queue_declare(options.name, durable=True, arguments={"x-single-active-consumer": True, "x-dead-letter-exchange": "",
                                                                 "x-dead-letter-routing-key": f"{options.name}.dead"})
    for aggregatetype in options.types:
        channel.queue_bind(options.name, options.exchange, aggregatetype)
    channel.basic_qos(prefetch_count=2 * options.batch)


def batches(channel: Any, options: argparse.Namespace) -> Iterator[list[Message]]:
    """What has arrived, and no more: nothing waits for a batch to be full."""
    batch: list[Message] = []
    for method, properties, body in channel.consume(options.name, inactivity_timeout=0.2):
        if stopping:
            return                      # what is not acknowledged goes back to the queue
        if method:
            batch.append(Message(method.delivery_tag, properties, body))
        if batch and (len(batch) >= options.batch or not channel.get_waiting_message_count()):
            yield batch
            batch = []


# ---- the program

def log(options: argparse.Namespace, text: str) -> None:
    print(f"{options.name}: {text}", file=sys.stderr, flush=True)


def rest(seconds: float, sleep: Any = time.sleep) -> None:
    end = time.monotonic() + seconds
    while not stopping and (left := end - time.monotonic()) > 0:
        sleep(min(left, 0.2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="of the consumer and of its queue")
    parser.add_argument("--types", nargs="+", default=["#"], help="aggregatetypes; default: all")
    parser.add_argument("--database", default="", help="connection string; default: PGHOST and so on")
    parser.add_argument("--broker", default="amqp://localhost", help="URL")
    parser.add_argument("--exchange", default="outbox")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--tries", type=int, default=3, help="of a message by itself, until it is dead-lettered")
    parser.add_argument("--pause", type=float, default=1, help="seconds between two tries")
    options = parser.parse_args()

    def stop(*_: Any) -> None:
        global stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    database = Database(options)
    while not stopping:
        try:
            database.connection()       # nothing is taken from the queue before there is one
            channel = pika.BlockingConnection(pika.URLParameters(options.broker)).channel()
            declare(channel, options)
            for batch in batches(channel, options):
                work(database, channel, batch, options)
        except Stopped:
            pass
        except (psycopg2.Error, AMQPError) as error:
            log(options, f"{error!r}; trying again")
            rest(options.pause)
    os._exit(0)     # drops the connection


if __name__ == "__main__":
    main()
