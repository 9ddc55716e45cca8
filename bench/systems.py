"""The systems that a run measures and how each of them is started."""

import sys
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).resolve().parent.parent
OURS: Final = "flowfabric"
FLOOR: Final = "floor"
BASE: Final = "base"
CACHE: Final = ROOT / ".bench"


class System(msgspec.Struct, frozen=True, kw_only=True):
    """One system: its title, what pip installs for it, and how its adapter is started."""

    name: str
    title: str
    adapter: tuple[str, ...]
    requirements: tuple[str, ...] = ()
    slow: bool = False
    folder: str = ""
    """The folder of its environment, if that is not called like the system."""

    @property
    def home(self) -> Path:
        """The environment of its own that a peer is installed into."""
        return CACHE / (self.folder or self.name)

    @property
    def python(self) -> str:
        """The interpreter that has the system installed."""
        if not self.requirements:
            return sys.executable
        folder, name = ("Scripts", "python.exe") if sys.platform == "win32" else ("bin", "python")
        return str(self.home / folder / name)

    def command(self, scenario: str, *options: str) -> list[str]:
        """The command line that measures one scenario; it runs in `ROOT`."""
        return [self.python, *self.adapter, scenario, *options]


OWN_ADAPTER: Final = ("bench/peers/flowfabric_peer.py",)

SYSTEMS: Final = {
    system.name: system
    for system in (
        System(
            name=OURS,
            title="FlowFabric",
            adapter=OWN_ADAPTER,
        ),
        System(
            name="pgqueuer",
            title="PGQueuer 1.6.0",
            adapter=("bench/peers/pgqueuer_peer.py",),
            requirements=("pgqueuer[asyncpg]==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"),
        ),
        System(
            name="procrastinate",
            title="Procrastinate 3.10.0",
            adapter=("bench/peers/procrastinate_peer.py",),
            requirements=("procrastinate==3.10.0", "psycopg[binary]==3.3.8"),
            slow=True,
        ),
        System(
            name="dbos",
            title="DBOS 3.3.0",
            adapter=("bench/peers/dbos_peer.py",),
            requirements=("dbos==3.3.0", "psycopg[binary]==3.3.8"),
            slow=True,
        ),
        System(
            name=FLOOR,
            title="bare SQL",
            adapter=("bench/peers/floor_peer.py",),
        ),
    )
}

PEERS: Final = tuple(name for name, system in SYSTEMS.items() if system.requirements)
