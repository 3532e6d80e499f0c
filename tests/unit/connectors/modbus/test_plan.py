"""Which requests read which tags."""

from hypothesis import given
from hypothesis import strategies as st

from connectors.modbus.plan import Place, plan
from connectors.modbus.settings import Table, WireType

PLACES = st.lists(
    st.builds(
        lambda table, address, kind: Place(table, address, WireType.BOOL if table in (Table.COIL, Table.DISCRETE) else kind),
        st.sampled_from(Table),
        st.integers(0, 3000),
        st.sampled_from(WireType),
    ),
    min_size=1,
    max_size=80,
)


@given(PLACES, st.integers(0, 120), st.integers(2, 125))
def test_every_place_is_read_once_within_the_limits_and_the_gap(places: list[Place], gap: int, limit: int) -> None:
    blocks = plan(places, gap, limit)
    assert sorted(i for block in blocks for i in block.members) == list(range(len(places)))
    for block in blocks:
        bits = block.table in (Table.COIL, Table.DISCRETE)
        assert block.count <= (2000 if bits else limit)
        end = block.start
        for i in sorted(block.members, key=lambda i: places[i].address):
            place = places[i]
            assert place.table is block.table
            assert place.address - end <= (gap * 16 if bits else gap)
            assert block.start <= place.address
            end = max(end, place.address + place.type.words)
        assert end == block.start + block.count


def test_neighbours_share_a_request_and_a_wide_gap_splits() -> None:
    places = [Place(Table.HOLDING, a, WireType.FLOAT32) for a in (0, 2, 12, 30)]
    assert [(b.start, b.count) for b in plan(places, 8, 125)] == [(0, 14), (30, 2)]


def test_tables_are_never_mixed() -> None:
    places = [Place(table, 0, WireType.BOOL) for table in Table]
    assert sorted(b.function for b in plan(places, 8, 125)) == [1, 2, 3, 4]


def test_a_value_of_two_registers_is_never_torn_between_requests() -> None:
    places = [Place(Table.INPUT, a, WireType.FLOAT32) for a in range(0, 250, 2)]
    assert [(b.start, b.count) for b in plan(places, 0, 125)] == [(0, 124), (124, 124), (248, 2)]
