"""A picture of the running dashboard, for the README."""

import asyncio
from pathlib import Path

from gateway.core.clock import SystemClock
from tui.app import LinesideApp
from tui.glyphs import UNICODE


async def save_picture(socket: Path, out: Path, size: tuple[int, int] = (100, 26)) -> None:
    """Attach a dashboard without a terminal to a gateway and save what it shows as SVG.

    Args:
        socket: The gateway's API.
        out: The file.
        size: Columns and lines.
    """
    app = LinesideApp(socket, SystemClock(), operator=True, glyphs=UNICODE)
    async with app.run_test(size=size) as pilot:
        await app.refresh_snapshot()
        await pilot.pause()
        picture = app.export_screenshot(title="lineside tui")
    await asyncio.to_thread(out.write_text, picture, encoding="utf-8")
