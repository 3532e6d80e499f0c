"""The audit file: every record in its place, every change found, a torn end repaired, no writing without it."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gateway.control.audit as audit_module
from gateway.control.audit import Audit, read
from gateway.core.errors import PermanentError
from tests.virtual_clock import VirtualClock


def filled(path: Path, records: int = 5) -> list[bytes]:
    audit = Audit(path, VirtualClock())
    for n in range(records):
        audit.append("write", {"value": n, "text": 'ü "hash":"'})
    audit.close()
    return path.read_bytes().splitlines(keepends=True)


def test_the_chain_goes_on_over_restarts_and_verifies(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for _ in range(3):
        filled(path)
    records = list(read(path))
    assert [record["n"] for record in records] == list(range(1, 16))
    assert [record["body"]["value"] for record in records] == [0, 1, 2, 3, 4] * 3


@settings(deadline=None)
@given(st.data())
def test_any_changed_byte_is_found(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("audit") / "audit.jsonl"
    content = b"".join(filled(path))
    at = data.draw(st.integers(0, len(content) - 2))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[at]))
    path.write_bytes(content[:at] + bytes((other,)) + content[at + 1 :])
    with pytest.raises(PermanentError, match="chain broken at record"):
        list(read(path))


@pytest.mark.parametrize("order", [[0, 2, 3, 4], [1, 2, 3, 4], [0, 1, 1, 2, 3, 4], [0, 2, 1, 3, 4]])
def test_records_taken_out_doubled_or_moved_are_found(tmp_path: Path, order: list[int]) -> None:
    path = tmp_path / "audit.jsonl"
    lines = filled(path)
    path.write_bytes(b"".join(lines[i] for i in order))
    with pytest.raises(PermanentError, match="chain broken at record"):
        list(read(path))


@settings(deadline=None)
@given(st.data())
def test_a_torn_end_is_cut_off_said_and_continued(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("audit") / "audit.jsonl"
    content = b"".join(filled(path))
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n")
    torn = cut - (content[:cut].rfind(b"\n") + 1)
    assert len(list(read(path))) == whole
    audit = Audit(path, VirtualClock())
    audit.append("next", {})
    audit.close()
    kinds = [record["kind"] for record in read(path)]
    assert kinds == ["write"] * whole + ["torn line removed"] * bool(torn) + ["next"]


def test_a_long_file_with_a_long_last_record_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "_TAIL", 50)
    path = tmp_path / "audit.jsonl"
    filled(path)
    with path.open("ab") as file:
        file.write(b"x" * 500)
    filled(path, 1)
    assert len(list(read(path))) == 7


def test_a_damaged_last_record_is_kept_as_evidence(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    content = b"".join(filled(path)).replace(b'"value":4', b'"value":5')
    path.write_bytes(content)
    with pytest.raises(PermanentError, match="damaged"):
        Audit(path, VirtualClock())
    assert path.read_bytes() == content


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="No such file") as caught:
        Audit(tmp_path / "none" / "audit.jsonl", VirtualClock())
    assert caught.value.remedy


def test_after_a_failed_sync_nothing_is_taken_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = Audit(tmp_path / "audit.jsonl", VirtualClock())
    audit.append("write", {})

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(PermanentError, match="Input/output error"):
        audit.sync()
    for _ in range(2):
        with pytest.raises(PermanentError, match="Input/output error"):
            audit.append("write", {})
    audit.close()
    assert len(list(read(audit.path))) == 1


async def test_automatic_records_reach_the_disk_within_a_second_and_nothing_is_synced_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, synced = VirtualClock(), asyncio.Semaphore(0)
    loop, calls = asyncio.get_running_loop(), list[int]()

    def note(descriptor: int) -> None:
        calls.append(descriptor)
        loop.call_soon_threadsafe(synced.release)

    monkeypatch.setattr(os, "fsync", note)
    audit = Audit(tmp_path / "audit.jsonl", clock)
    running = asyncio.create_task(audit.run())
    audit.append("write", {})
    audit.append("write", {})
    await clock.advance(1.1)
    async with asyncio.timeout(10):
        await synced.acquire()
    running.cancel()
    await asyncio.wait((running,))
    audit.close()
    assert len(calls) == 1


def test_each_line_is_plain_json_that_other_tools_can_read(tmp_path: Path) -> None:
    for line in filled(tmp_path / "audit.jsonl"):
        record = json.loads(line)
        assert set(record) == {"n", "utc_ns", "kind", "body", "previous", "hash"}
