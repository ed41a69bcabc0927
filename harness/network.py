"""Network of one cluster: each node in a network namespace, all on one virtual switch.

    node 1's namespace: eth0 --+
    node 2's namespace: eth0 --+-- bridge, in a namespace too --- NAME, in ours: clients
    node 3's namespace: eth0 --+

To lose a node's packets to another, the sender gets an unused hardware address for the receiver.
The packets leave and never arrive, no error comes back, and the other direction is untouched.
No packet filter is needed. The bridge has a namespace of its own, so this machine's filters do
not apply to it.

Addresses are .1, .2, ... for the nodes, .100, ... for other programs, .254 for us. A TCP proxy
of ours between nodes A and B uses an address for that pair alone, so its packets are lost, too.
Needs root, and the commands `ip` and `nsenter`. Methods raise HarnessError with the failed
command's output.
"""

from __future__ import annotations

import functools
import ipaddress
import json
import os
import shutil
import signal
import subprocess
import zlib
from collections.abc import Iterable
from pathlib import Path

from harness.node_process import HarnessError

NOBODY = "02:00:00:00:00:01"  # a hardware address of the locally administered kind
MAX_NODES = 9
OURS = 254
SUBNETS = 64  # networks tried until one is unused on this machine


class Network:
    """Network of one cluster. `name`: our interface and, with a suffix, the namespaces.

    base: the first three numbers of its addresses, such as "10.70.3".
    """

    def __init__(self, name: str, base: str, nodes: Iterable[int]) -> None:
        self.name = name
        self.base = base
        self.nodes = list(nodes)
        assert max(self.nodes) <= MAX_NODES

    @property
    def ours(self) -> str:
        return f"{self.base}.{OURS}"

    def address(self, node: int) -> str:
        return f"{self.base}.{node}"

    def between(self, a: int, b: int) -> str:
        """Our address for a proxy between the two nodes."""
        return f"{self.base}.{10 * min(a, b) + max(a, b)}"

    def namespace(self, node: int) -> str:
        return f"{self.name}-{node}"

    def command(self, node: int) -> list[str]:
        """Command prefix that runs a command in the node's namespace."""
        # Unlike `ip netns exec` it leaves the mounted file systems as they are.
        return ["nsenter", f"--net=/run/netns/{self.namespace(node)}", "--"]

    # -- life -----------------------------------------------------------------------------

    def open(self) -> None:
        """Makes the network, after removing an earlier network of this name."""
        self.close()
        switch = f"{self.name}-switch"
        pairs = [(a, b) for a in self.nodes for b in self.nodes if a < b]
        try:
            _ip(
                f"netns add {switch}",
                f"link add {self.name} type veth peer name clients netns {switch}",
                *(f"addr add {at}/24 dev {self.name}"
                  for at in (self.ours, *(self.between(a, b) for a, b in pairs))),
                f"link set {self.name} up",
            )  # fmt: skip
            _ip("link add bridge type bridge", "link set bridge up", namespace=switch)
            for node in self.nodes:
                self._connect(node, switch)
            _ip("link set clients master bridge", "link set clients up", namespace=switch)
        except HarnessError:
            self.close()
            raise

    def _connect(self, node: int, switch: str) -> None:
        _ip(
            f"netns add {self.namespace(node)}",
            f"link add node{node} netns {switch} type veth "
            f"peer name eth0 netns {self.namespace(node)}",
        )
        _ip(
            f"link set node{node} master bridge",
            f"link set node{node} up",
            namespace=switch,
        )
        _ip(
            f"addr add {self.address(node)}/24 dev eth0",
            "link set lo up",
            "link set eth0 up",
            namespace=self.namespace(node),
        )

    def join(self, number: int) -> None:
        """Connects one more namespace for a program: `number` from 100 to 199."""
        assert 100 <= number < 200
        self._connect(number, f"{self.name}-switch")

    def close(self) -> None:
        """Removes everything of this name, and ends processes that still run in it."""
        ours = [name for name in _namespaces() if name.startswith(f"{self.name}-")]
        for name in ours:
            for pid in _output("ip", "netns", "pids", name).split():
                os.kill(int(pid), signal.SIGKILL)
        if Path(f"/sys/class/net/{self.name}").exists():
            _ip(f"link del {self.name}")
        if ours:
            _ip(*(f"netns del {name}" for name in ours))

    # -- faults ---------------------------------------------------------------------------

    def lose(self, sender: int, receiver: int) -> None:
        """Drops all packets from sender to receiver; the other direction still works."""
        _ip(
            *(f"neigh replace {at} lladdr {NOBODY} dev eth0 nud permanent"
              for at in (self.address(receiver), self.between(sender, receiver))),
            namespace=self.namespace(sender),
        )  # fmt: skip

    def unplug(self, number: int) -> None:
        """Cuts a namespace off in both directions, without any error."""
        _ip(f"link set node{number} nomaster", namespace=f"{self.name}-switch")

    def plug(self, number: int) -> None:
        """Reconnects an unplugged namespace."""
        _ip(f"link set node{number} master bridge", namespace=f"{self.name}-switch")

    def heal(self) -> None:
        """Restores all connections between nodes."""
        for node in self.nodes:
            _ip("neigh flush dev eth0 nud permanent", namespace=self.namespace(node))


def network_for(root: Path, nodes: Iterable[int]) -> Network:
    """Network of the cluster in `root`, with the same name each time.

    Its addresses are unused on this machine now. Raises HarnessError.
    """
    number = zlib.crc32(os.fsencode(root))
    name = f"ol{number:08x}"
    used = [ipaddress.ip_network(text) for text in _routes(but=name)]
    for step in range(SUBNETS):
        high, low = divmod((number + step) % (64 * 256), 256)
        base = f"10.{64 + high}.{low}"
        if not any(ipaddress.ip_network(f"{base}.0/24").overlaps(one) for one in used):
            return Network(name, base, nodes)
    raise HarnessError(f"this machine uses all of the {SUBNETS} networks that were tried")


def _routes(but: str) -> list[str]:
    """Destinations of this machine's routes, without the default route."""
    found = json.loads(_output("ip", "-json", "-4", "route", "show") or "[]")
    return [
        route["dst"] for route in found if route["dst"] != "default" and route.get("dev") != but
    ]


def _namespaces() -> list[str]:
    return [line.split()[0] for line in _output("ip", "netns", "list").splitlines() if line]


def _ip(*commands: str, namespace: str = "") -> None:
    where = ["-netns", namespace] if namespace else []
    _output("ip", *where, "-batch", "-", given="\n".join(commands) + "\n")


def _output(*words: str, given: str = "") -> str:
    try:
        done = subprocess.run(words, input=given, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise HarnessError(f"{words[0]}: there is no such command here") from error
    if done.returncode:
        raise HarnessError(f"{' '.join(words)}: {done.stderr.strip()} {given.strip()}".strip())
    return done.stdout


@functools.cache
def missing() -> str:
    """Reason that this machine cannot have such a network; empty if it can. Tries one."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "nsenter"):
        if shutil.which(tool) is None:
            return f"network namespaces need {tool}"
    try:
        network = network_for(Path(f"/trial-{os.getpid()}"), [1, 2])
        network.open()
        try:
            network.lose(1, 2)
            network.heal()
        finally:
            network.close()
    except HarnessError as error:
        return f"network namespaces cannot be had: {error}"
    return ""
