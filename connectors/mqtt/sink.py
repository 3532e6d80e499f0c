"""An MQTT broker as a sink: accepted means that the broker has confirmed it."""

import asyncio
import hashlib
import logging
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import aiomqtt

from connectors.mqtt.settings import MqttSettings
from connectors.reconnect import Link, Reconnect
from gateway.core.clock import Clock
from gateway.core.condition import Condition, Priority
from gateway.core.protocols import Delivery, Message
from gateway.core.quality import Ne107
from gateway.core.snapshot import SinkStatus

_IN_FLIGHT = 20
_ACK_TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 5.0
_TAKEN_OVER_S = 2.0  # a session that is lost this soon, again and again, is taken by another client of the same id
_TAKEN_OVER_TIMES = 3

# aiomqtt warns of pending calls, which are bounded here, and paho logs each connection; both are counted below.
_quiet = logging.getLogger("lineside.mqtt.library")
_quiet.setLevel(logging.CRITICAL)


def default_client_id(gateway: str) -> str:
    """An id that stays the same for this machine and gateway, and differs between machines."""
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except OSError:
        machine = socket.gethostname()
    return f"lineside-{hashlib.sha256(f'{machine}/{gateway}'.encode()).hexdigest()[:16]}"


class MqttSink:
    """Satisfies `Sink`: QoS 1, 20 messages in flight, a last will, own reconnect.

    Args:
        settings: As checked.
        gateway: Name of the gateway, for topics and the client id.
        clock: For pauses.
    """

    def __init__(self, settings: MqttSettings, gateway: str, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._state_topic = settings.topics.state.format(gateway=gateway)
        self._client_id = settings.client_id or default_client_id(gateway)
        self._reconnect = Reconnect(f"{settings.host}:{settings.port}", clock, cap_s=10.0)
        self._client: aiomqtt.Client | None = None
        self._up = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._takeovers = 0
        self._condition: Condition | None = None
        self._accepted = self._rejected = 0

    @property
    def name(self) -> str:
        """As configured."""
        return self._settings.name

    async def __aenter__(self) -> Self:
        self._password = self._settings.password.read() if self._settings.password else None
        self._task = asyncio.create_task(self._keep_connected(), name=f"mqtt {self.name}")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def ready(self) -> None:
        """Return once there is a connection."""
        await self._up.wait()

    async def _keep_connected(self) -> None:
        while True:
            await self._clock.sleep_until(self._reconnect.next_try_ns)
            started_ns = self._clock.mono_ns()
            try:
                async with AsyncExitStack() as stack:
                    client = await self._connect(stack)
                    self._reconnect.up()
                    self._client = client
                    self._up.set()
                    await self._until_lost(client)
            except aiomqtt.MqttError as error:
                self._note_loss(error, started_ns)
            except (OSError, TimeoutError) as error:
                self._note_loss(aiomqtt.MqttError(str(error)), started_ns)
            finally:
                self._client = None
                self._up.clear()

    async def _connect(self, stack: AsyncExitStack) -> aiomqtt.Client:
        settings = self._settings
        client = aiomqtt.Client(
            settings.host,
            settings.port,
            username=settings.username,
            password=self._password,
            identifier=self._client_id,
            keepalive=settings.keep_alive_s,
            timeout=_CONNECT_TIMEOUT_S,
            will=aiomqtt.Will(self._state_topic, b"offline", qos=1, retain=True),
            max_inflight_messages=_IN_FLIGHT,
            max_queued_outgoing_messages=_IN_FLIGHT * 2,
            logger=_quiet,
        )
        await stack.enter_async_context(client)
        connection = client._client.socket()  # noqa: SLF001 - aiomqtt has no public way to its socket
        if isinstance(connection, socket.socket):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await client.publish(self._state_topic, b"online", qos=1, retain=True)
        if self._takeovers < _TAKEN_OVER_TIMES:
            self._say(active=False, text="", remedy="")
        return client

    async def _until_lost(self, client: aiomqtt.Client) -> None:
        """Messages to us do not exist; the iteration ends with an error when the connection does."""
        async for _ in client.messages:
            pass

    def _note_loss(self, error: aiomqtt.MqttError, started_ns: int) -> None:
        lived_s = (self._clock.mono_ns() - started_ns) / 1e9
        was_up = self._up.is_set()
        self._takeovers = self._takeovers + 1 if was_up and lived_s < _TAKEN_OVER_S else 0
        if self._takeovers >= _TAKEN_OVER_TIMES:
            text = f"session taken over: another client uses the id {self._client_id}"
            remedy = "give one of the two another client_id"
            # Fighting for the session helps nobody: the pauses grow as after failures.
            self._reconnect.tries += _TAKEN_OVER_TIMES
        else:
            text, remedy = _words(error), "check the broker, its address and the user name"
        self._reconnect.down(text, remedy)
        self._say(active=True, text=text, remedy=remedy)

    def _say(self, *, active: bool, text: str, remedy: str) -> None:
        known = self._condition
        if known is None and not active:
            return
        if known is not None and known.active == active and known.text == text:
            return
        word = Ne107.OUT_OF_SPECIFICATION if active else Ne107.GOOD
        self._condition = Condition(self.name, "broker away", active, Priority.LOW, text, remedy, word, self._clock.wall_ns())

    async def deliver(self, messages: Sequence[Message]) -> Delivery:
        """Publish messages, 20 at a time.

        Returns:
            Accepted after the broker's acknowledgement; rejected if it can never be sent; kept otherwise.
        """
        accepted: list[int] = []
        rejected: list[tuple[int, str]] = []
        kept: list[int] = []
        for first in range(0, len(messages), _IN_FLIGHT):
            part = messages[first : first + _IN_FLIGHT]
            fates = await asyncio.gather(*(self._publish(message) for message in part))
            for i, fate in enumerate(fates, start=first):
                if fate is None:
                    accepted.append(i)
                elif fate:
                    rejected.append((i, fate))
                else:
                    kept.append(i)
            if kept:
                kept.extend(range(first + len(part), len(messages)))
                break
        self._accepted += len(accepted)
        self._rejected += len(rejected)
        return Delivery(tuple(accepted), tuple(rejected), tuple(kept))

    async def _publish(self, message: Message) -> str | None:
        """None if confirmed, a reason if it can never be sent, an empty string if it may be sent later."""
        if len(message.payload) > self._settings.max_message_kb * 1024:
            return f"message of {len(message.payload)} bytes is larger than max_message_kb"
        client = self._client
        if client is None:
            return ""
        try:
            await client.publish(message.topic, message.payload, qos=1, retain=message.retain, timeout=_ACK_TIMEOUT_S)
        except aiomqtt.MqttError:
            return ""
        except ValueError as error:
            return f"topic '{message.topic}': {error}"
        return None

    def conditions(self) -> Sequence[Condition]:
        """Whether the broker is away."""
        return (self._condition,) if self._condition else ()

    def status(self) -> SinkStatus:
        """State of the connection."""
        away = self._reconnect.link is Link.DOWN
        return SinkStatus(
            self.name,
            "mqtt",
            f"{self._settings.host}:{self._settings.port}",
            Ne107.OUT_OF_SPECIFICATION if away else Ne107.GOOD,
            self._reconnect.words(),
            self._accepted,
            self._rejected,
            reconnects=self._reconnect.reconnects,
        )


def _words(error: aiomqtt.MqttError) -> str:
    """What the library says, in words an operator knows."""
    text = str(error)
    if isinstance(error, aiomqtt.MqttCodeError):
        return f"the broker refuses: {text}" if "efused" in text or "uthor" in text else f"connection lost ({text})"
    return f"no connection to the broker ({text})" if text else "no connection to the broker"
