"""RabbitMQ with publisher confirms: many messages on their way at once, and an answer for each."""
import json
from typing import Any

import pika
from pika.exceptions import ChannelClosedByBroker, ShortStringTooLong


class Publisher:
    """A connection with one channel in confirm mode. Its event loop runs only while something is awaited."""

    def __init__(self, url: str, exchange: str) -> None:
        self.exchange = exchange
        self.alive = False
        self.lost: Any = None                       # why the connection or the channel was closed
        self.tag = 0                                # of the last message published
        self.waiting: dict[int, str] = {}           # tag: message id
        self.answers: dict[str, str | None] = {}    # message id: None for confirmed, else why not
        self.connection = pika.SelectConnection(
            pika.URLParameters(url), on_open_callback=lambda c: c.channel(on_open_callback=self.on_channel),
            on_open_error_callback=self.on_lost, on_close_callback=self.on_lost)
        self.loop = self.connection.ioloop
        self.loop.start()
        if not self.alive:
            raise self.lost

    def on_channel(self, channel: Any) -> None:
        self.channel = channel
        channel.add_on_close_callback(self.on_lost)
        channel.add_on_return_callback(self.on_return)
        channel.confirm_delivery(self.on_confirm)
        channel.exchange_declare(self.exchange, "topic", durable=True, callback=self.on_ready)

    def on_ready(self, _: Any) -> None:
        self.alive = True
        self.loop.stop()

    def on_lost(self, _: Any, reason: Any) -> None:
        self.alive = False
        self.lost = self.lost or reason
        self.connection.ioloop.stop()

    def on_return(self, _channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        self.answers[properties.message_id] = f"{method.reply_code} {method.reply_text}"    # its confirm comes next

    def on_confirm(self, frame: Any) -> None:
        last, refused = frame.method.delivery_tag, frame.method.NAME != "Basic.Ack"
        for tag in [t for t in self.waiting if t <= last] if frame.method.multiple else [last]:
            if message_id := self.waiting.pop(tag, None):
                self.answers.setdefault(message_id, "refused by the broker" if refused else None)
        if not self.waiting:
            self.loop.stop()

    def publish(self, messages: list[Any], seconds: float) -> dict[str, str | None]:
        """Publishes and waits. A message without an answer (then the broker is lost) may have arrived or not."""
        self.waiting, self.answers = {}, {}
        for m in messages:
            # What no queue wants is returned (mandatory), not dropped.
            try:
                self.channel.basic_publish(self.exchange, m.aggregatetype, (m.payload or "").encode(), properties(m), mandatory=True)
            except ShortStringTooLong as error:
                self.answers[m.id] = f"name of a header too long: {error}"
                continue
            self.tag += 1
            self.waiting[self.tag] = m.id
        if self.waiting and self.alive:
            timer = self.loop.call_later(seconds, lambda: self.on_lost(None, "no confirmation in time"))
            self.loop.start()
            self.loop.remove_timeout(timer)
        if len(messages) == 1 and isinstance(self.lost, ChannelClosedByBroker):     # too large, for example
            self.answers[messages[0].id] = str(self.lost)
        return self.answers

    def rest(self, seconds: float, fd: int) -> None:
        """Answers heartbeats until the time is over, or there is something to read elsewhere."""
        timer = self.loop.call_later(seconds, self.loop.stop)
        self.loop.add_handler(fd, lambda *_: self.loop.stop(), self.loop.READ)
        self.loop.start()
        self.loop.remove_handler(fd)
        self.loop.remove_timeout(timer)

    def close(self) -> None:
        if not (self.connection.is_closed or self.connection.is_closing):
            self.connection.close()
            self.loop.call_later(5, self.loop.stop)
            self.loop.start()


def properties(m: Any) -> pika.BasicProperties:
    headers = {name: value if isinstance(value, str) else json.dumps(value) for name, value in (m.headers or {}).items()}
    return pika.BasicProperties(message_id=m.id, type=m.type, content_type="application/json", delivery_mode=2,     # persistent
                                timestamp=int(m.created_at.timestamp()),
                                headers=headers | {"aggregatetype": m.aggregatetype, "aggregateid": m.aggregateid, "type": m.type})
