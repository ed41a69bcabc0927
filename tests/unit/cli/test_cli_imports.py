"""Modules that a plain command imports: each of them is time before its first call.

A list, not a time: a module that the command needs is added here, with a look at its cost
(`python -X importtime -m oncelog.cli topic list`). `oncelog topic list` stands for all commands.
"""

from __future__ import annotations

import subprocess
import sys

# `_distutils_hack` and the like come with the environment, before the command.
LIBRARIES = {"click", "google", "grpc", "typing_extensions"}
LIBRARIES |= {"grpc_health", "grpc_reflection", "grpc_tools"}  # gRPC's own, if they are installed
FOLDERS = {
    "oncelog", "oncelog._engine", "oncelog._engine.consume", "oncelog._engine.net", "oncelog.cli",
    "oncelog.v1", "oncelog.views", "oncelog.wire",
}  # fmt: skip
OURS = {
    "oncelog": "admin config dotted errors events lag moves permissions settings types version",
    "oncelog.cli": "app lazy names options output streams topics",
    "oncelog.views": "changes nodes tables topics words",
    "oncelog.wire": "batch compression foundings messages reasons status stored verdicts",
    "oncelog._engine": "admin arguments events sinks",
    "oncelog._engine.consume": "groups membership positions routes",
    "oncelog._engine.net": "attempts backoff channels cluster diverting founding leaders "
    "reachability runtime threads wrong_ports",
}
PROTOCOL = "batch cluster group log observe producer security sink transaction"
PROGRAM = """
import sys
before = set(sys.modules)
from oncelog.cli.app import run
from oncelog.cli.output import print_table
try:
    run(["topic", "list", "--bootstrap", "127.0.0.1:1", "--request-timeout-ms", "1"])
except SystemExit as exited:
    assert exited.code == 1
print_table(("topic", "partitions"), [("a", 1)])
print(*set(sys.modules) - before)
"""


def test_a_plain_command_imports_the_modules_of_the_list() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    imported = done.stdout.splitlines()[-1].split()
    ours = {name for name in imported if name.partition(".")[0] == "oncelog"}
    allowed = FOLDERS | {f"{room}.{name}" for room, names in OURS.items() for name in names.split()}
    allowed |= {f"oncelog.v1.{name}_pb2" for name in PROTOCOL.split()}
    allowed |= {f"oncelog.v1.{name}_pb2_grpc" for name in PROTOCOL.split()} - {
        "oncelog.v1.batch_pb2_grpc"
    }
    assert ours == allowed
    tops = {name.partition(".")[0] for name in imported} - {"oncelog", "cython_runtime"}
    others = {top for top in tops - sys.stdlib_module_names if not top.startswith("_")}
    assert others <= LIBRARIES
    assert not {"http", "email", "multiprocessing", "xml", "unicodedata"} & set(imported)
