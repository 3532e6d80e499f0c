"""An MQTT broker as a sink: accepted means that the broker has confirmed it."""

import asyncio
import hashlib
import logging
import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

import aiomqtt
from aiomqtt import ProtocolVersion
from aiomqtt.exceptions import MqttConnectError

from connectors.mqtt.session import Rivals, Suspects
from connectors.mqtt.settings import MqttSettings
from connectors.reconnect import Link, Reconnect
from gateway.core.clock import NS_PER_S, Clock
from gateway.core.condition import Condition, Priority
from gateway.core.protocols import Delivery, Message
from gateway.core.quality import Ne107
from gateway.core.snapshot import SinkStatus

_IN_FLIGHT = 20
_ACK_TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 5.0
_FAREWELL_S = 1.0

_Fate = str | None  # of a message: None if confirmed, the reason if it can never be sent, `_KEPT` if it may be sent later
_KEPT = ""
_TAKEN_OVER, _TOO_LARGE = 142, 149  # reasons of MQTT 5
_BRACKETS = re.compile(r"\[(code|Errno)[^\]]*\]")

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
        first_pause_s: Before the first try after a loss.
        longest_pause_s: To which the pauses grow.
    """

    def __init__(
        self, settings: MqttSettings, gateway: str, clock: Clock, *, first_pause_s: float = 0.5, longest_pause_s: float = 10.0
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._state_topic = settings.topics.state.format(gateway=gateway)
        self._client_id = settings.client_id or default_client_id(gateway)
        self._reconnect = Reconnect(f"{settings.host}:{settings.port}", clock, first_s=first_pause_s, cap_s=longest_pause_s)
        self._client: aiomqtt.Client | None = None
        self._up = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._suspects = Suspects(_IN_FLIGHT)
        self._rivals = Rivals()
        self._up_since_ns = 0
        self._publishing: dict[asyncio.Task[_Fate], Message] = {}
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
        if self._client is not None:
            # A broker publishes the last will of those only who go without a word.
            try:
                await self._client.publish(self._state_topic, b"offline", qos=1, retain=True, timeout=_FAREWELL_S)
            except (aiomqtt.MqttError, OSError):
                self._drop_link()
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
            try:
                async with self._new_client() as client:
                    await self._serve(client)
            except Exception as error:  # noqa: BLE001 - whatever the library makes of a lost link, this task is what brings it back
                self._note_loss(error)
            finally:
                self._client = None
                self._up.clear()
                for publishing in self._publishing:
                    publishing.cancel()

    def _new_client(self) -> aiomqtt.Client:
        settings = self._settings
        return aiomqtt.Client(
            settings.host,
            settings.port,
            protocol=ProtocolVersion.V5 if settings.protocol == "5" else ProtocolVersion.V311,
            username=settings.username,
            password=self._password,
            identifier=self._client_id,
            keepalive=settings.keep_alive_s,
            timeout=_CONNECT_TIMEOUT_S,
            will=aiomqtt.Will(self._state_topic, b"offline", qos=1, retain=True),
            max_inflight_messages=_IN_FLIGHT,
            max_queued_outgoing_messages=_IN_FLIGHT * 2,
            # A small message must not wait for the acknowledgement of the one before.
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            logger=_quiet,
        )

    async def _serve(self, client: aiomqtt.Client) -> None:
        """Say `online`, then stay until the connection is lost, which may be before that is confirmed."""
        watch = asyncio.create_task(self._until_lost(client), name=f"watch {self.name}")
        hello = asyncio.create_task(client.publish(self._state_topic, b"online", qos=1, retain=True), name=f"hello {self.name}")
        try:
            await asyncio.wait((watch, hello), return_when=asyncio.FIRST_COMPLETED)
            self._up_since_ns = self._clock.mono_ns()
            if hello.done() and not watch.done():
                await hello
                self._client = client
                self._reconnect.up()
                self._up.set()
                if not self._rivals.seen:
                    self._say("", "")
            await watch
        finally:
            watch.cancel()
            hello.cancel()
            await asyncio.gather(watch, hello, return_exceptions=True)

    async def _until_lost(self, client: aiomqtt.Client) -> NoReturn:
        """Messages to us do not exist; the iteration ends with an error when the connection does."""
        async for _ in client.messages:
            pass
        raise aiomqtt.MqttError("connection closed")

    def _note_loss(self, error: Exception) -> None:
        text, remedy = _words(error)
        if self._up.is_set():
            code = _code_of(error)
            # Few brokers say why they end a session; sessions that end early again and again must do.
            if not self._suspects.ended(list(self._publishing.values()), told=code == _TOO_LARGE) or code == _TAKEN_OVER:
                self._rivals.ended((self._clock.mono_ns() - self._up_since_ns) / NS_PER_S)
            if self._rivals.seen:
                sure = "uses" if code == _TAKEN_OVER else "seems to use"
                text = f"session taken over again and again: another client {sure} the id {self._client_id}"
                remedy = "give one of the two another client_id"
                # Fighting for the session helps nobody: the pauses grow as after failures.
                self._reconnect.tries = self._rivals.rounds
        self._reconnect.down(text, remedy)
        self._rivals.pausing((self._reconnect.next_try_ns - self._clock.mono_ns()) / NS_PER_S)
        self._say(text, remedy)

    def _drop_link(self) -> None:
        """End a connection that no longer answers."""
        connection = self._client._client.socket() if self._client is not None else None  # noqa: SLF001 - aiomqtt has no public way to it
        if isinstance(connection, socket.socket):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _say(self, text: str, remedy: str) -> None:
        """Keep the condition of the broker; no text: it is there. A condition changes only with its state."""
        known, active = self._condition, bool(text)
        if (known is None and not active) or (known is not None and known.active == active and known.text == text):
            return
        word = Ne107.OUT_OF_SPECIFICATION if active else Ne107.GOOD
        self._condition = Condition(self.name, "broker away", active, Priority.LOW, text, remedy, word, self._clock.wall_ns())

    async def deliver(self, messages: Sequence[Message]) -> Delivery:
        """Publish messages, 20 at a time.

        Returns:
            Accepted after the broker's acknowledgement; rejected if it can never be sent; kept otherwise.
        """
        fates: list[_Fate] = []
        while len(fates) < len(messages) and _KEPT not in fates:
            fates += await self._deliver_part(messages[len(fates) : len(fates) + self._suspects.at_once])
        fates += [_KEPT] * (len(messages) - len(fates))
        accepted = tuple(i for i, fate in enumerate(fates) if fate is None)
        rejected = tuple((i, fate) for i, fate in enumerate(fates) if fate)
        self._accepted += len(accepted)
        self._rejected += len(rejected)
        return Delivery(accepted, rejected, tuple(i for i, fate in enumerate(fates) if fate == _KEPT))

    async def _deliver_part(self, part: Sequence[Message]) -> list[_Fate]:
        tasks = {asyncio.create_task(self._publish(message), name=f"publish {self.name}"): message for message in part}
        self._publishing.update(tasks)
        for task in tasks:
            task.add_done_callback(self._published)
        fates: list[_Fate] = []
        for fate in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(fate, asyncio.CancelledError):
                fates.append(_KEPT)  # the link went while it was on its way
            elif isinstance(fate, BaseException):
                raise fate
            else:
                fates.append(fate)
        return fates

    def _published(self, task: asyncio.Task[_Fate]) -> None:
        del self._publishing[task]

    async def _publish(self, message: Message) -> _Fate:
        size = len(message.payload)
        if size > self._settings.max_message_kb * 1024:
            return f"message of {size} bytes is larger than max_message_kb"
        if self._client is None:
            return _KEPT
        if self._suspects.is_poison(message):
            return f"the broker closes the connection on this message ({size} bytes, topic '{message.topic}'): check its limits"
        try:
            await self._client.publish(message.topic, message.payload, qos=1, retain=message.retain, timeout=_ACK_TIMEOUT_S)
        except aiomqtt.MqttCodeError:
            return _KEPT
        except aiomqtt.MqttError:
            self._drop_link()
            return _KEPT
        except ValueError as error:
            return f"topic '{message.topic}': {error}"
        self._suspects.confirmed(message)
        return None

    def conditions(self) -> Sequence[Condition]:
        """Whether the broker is away."""
        if self._client is not None and self._rivals.gone((self._clock.mono_ns() - self._up_since_ns) / NS_PER_S):
            self._say("", "")
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


def _code_of(error: BaseException) -> int:
    """The protocol's reason code behind an error, 0 if there is none."""
    for candidate in (error, error.__cause__):
        if isinstance(candidate, aiomqtt.MqttCodeError) and candidate.rc is not None:
            return candidate.rc if isinstance(candidate.rc, int) else candidate.rc.value
    return 0


def _words(error: Exception) -> tuple[str, str]:
    """What the library says, in words an operator knows, and what to do."""
    text = _BRACKETS.sub("", str(error)).strip(" .") or type(error).__name__
    if isinstance(error, MqttConnectError):
        return f"the broker refuses: {text}", "check user name, password and client_id"
    if isinstance(error, aiomqtt.MqttCodeError):
        return f"connection lost ({text})", "check the broker and the network"
    return f"no connection to the broker ({text})", "check that the broker runs, and its host and port"
