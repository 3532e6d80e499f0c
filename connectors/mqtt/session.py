"""What the way a session ends tells: a message the broker cannot stand, or another client of the same id.

With MQTT 5 some brokers give a reason when they close a connection, most do not; then both are found by what happens again and again.
"""

from collections.abc import Sequence

from gateway.core.protocols import Message

_STRIKES = 5
_LIKENESS = 2  # a message up to this many times the largest one confirmed is nothing new
_TOPICS_KNOWN = 10_000
_SHORT_LIFE_S = 2.0
_ROUNDS = 3


class Suspects:
    """Finds the message that a broker answers by closing the connection.

    A message is strange as long as none like it (same topic, about its size) was ever confirmed. Sessions that end with strange messages in
    flight make the sink careful: one at a time. A strange message that was alone in flight at the end of five sessions is poison. An
    unstable link cannot make poison of what the broker has taken before.

    Args:
        in_flight: Messages the sink sends at once.
    """

    def __init__(self, in_flight: int) -> None:
        self._in_flight = in_flight
        self._largest = 0
        self._topics: set[str] = set()
        self._strikes: dict[Message, int] = {}
        self._careful = 0

    @property
    def at_once(self) -> int:
        """How many messages to send together now."""
        return 1 if self._careful else self._in_flight

    def confirmed(self, message: Message) -> None:
        """The broker has taken it."""
        self._largest = max(self._largest, len(message.payload))
        if len(self._topics) < _TOPICS_KNOWN:
            self._topics.add(message.topic)
        self._careful = max(self._careful - 1, 0)
        self._strikes.pop(message, None)

    def ended(self, unconfirmed: Sequence[Message], *, told: bool = False) -> bool:
        """A session is over, with these messages in flight; says whether one of them may be the reason.

        Args:
            unconfirmed: Sent and not confirmed.
            told: The broker says that one of them is the reason.
        """
        strange = [message for message in unconfirmed if told or self._is_strange(message)]
        if not strange:
            return False
        self._careful = self._in_flight
        if len(unconfirmed) == 1:
            self._strikes = {strange[0]: self._strikes.get(strange[0], 0) + (_STRIKES if told else 1)}
        return True

    def is_poison(self, message: Message) -> bool:
        """Whether it is given up; asked once, it is forgotten then."""
        if self._strikes.get(message, 0) < _STRIKES:
            return False
        del self._strikes[message]
        self._careful = 0
        return True

    def _is_strange(self, message: Message) -> bool:
        return message.topic not in self._topics or len(message.payload) > _LIKENESS * self._largest


class Rivals:
    """Recognises another client of the same id: the broker ends the older session of the two, so they throw each other out for ever."""

    def __init__(self) -> None:
        self.rounds = 0
        self._limit_s = _SHORT_LIFE_S

    @property
    def seen(self) -> bool:
        """Whether the session is being taken over."""
        return self.rounds >= _ROUNDS

    def ended(self, lived_s: float) -> None:
        """A session that had been accepted is over."""
        self.rounds = self.rounds + 1 if lived_s < self._limit_s else 0

    def pausing(self, pause_s: float) -> None:
        """The next session begins after a pause; the rival's is likely as long, and so may ours live."""
        self._limit_s = max(_SHORT_LIFE_S, 2 * pause_s)

    def gone(self, lived_s: float) -> bool:
        """Whether a session that is alive has lived long enough to say that there is no rival any more."""
        if lived_s >= self._limit_s:
            self.rounds = 0
        return not self.seen
