"""Checks an image for another processor beside the same image for this machine's.

    docker export --> each file: path, owner, mode, processor of a program, digest --> differences

    python contents.py IMAGE ARCHITECTURE NATIVE

The programs are of the processor, and of no other. What we put into the image is the same in both,
but for programs and the names that tell the processor.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator

MACHINES = {62: "amd64", 183: "arm64"}  # e_machine of an ELF file
PROCESSOR = re.compile(r"x86_64|amd64|aarch64|arm64")
OURS = ("opt/", "app/", "data", "certs", "usr/share/oncelog")
# These name wheels of the processor, or have times.
LISTS = re.compile(r"sbom\.cdx\.json|uv_cache\.json|dist-info/(RECORD$|WHEEL$|sboms/)|\.pyc$")


def contents(image: str) -> Iterator[tuple[str, str, str]]:
    """Yield of each file: its path; of a program, its processor; all else that can be compared."""
    container = _docker("create", image).strip()
    command = ["docker", "export", container]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as export:
        with tarfile.open(fileobj=export.stdout, mode="r|") as tar:
            for one in tar:
                file = tar.extractfile(one) if one.isfile() else None
                data = file.read() if file else one.linkname.encode()
                program = file is not None and data[:4] == b"\x7fELF"
                number = int.from_bytes(data[18:20], "little")
                kind = MACHINES.get(number, f"machine {number}") if program else ""
                listed = LISTS.search(one.name)
                digest = "" if program or listed else hashlib.sha256(data).hexdigest()[:12]
                rest = f"{one.type!r} {one.mode:o} {one.uid}:{one.gid} {digest}"
                yield PROCESSOR.sub("CPU", one.name), kind, rest
    assert export.returncode == 0, f"docker export {image}: exit code {export.returncode}"
    _docker("rm", container)


def faults(image: str, architecture: str, native: str) -> Iterator[str]:
    said = json.loads(_docker("image", "inspect", image))[0]["Architecture"]
    if said != architecture:
        yield f"{image} says that it is for {said}"
    found, wanted = [*contents(image)], [*contents(native)]
    programs = [kind for _, kind, _ in found if kind]
    print(
        f"{image}: {len(found)} files, {programs.count(architecture)} programs for {architecture}"
    )
    if not programs:
        yield f"{image} has no program"
    yield from (
        f"{path} is for {kind}" for path, kind, _ in found if kind not in ("", architecture)
    )
    ours, theirs = (
        {(path, kind != "", rest) for path, kind, rest in one if path.startswith(OURS)}
        for one in (found, wanted)
    )
    print(f"{len(ours)} of them are ours")
    yield from (f"only in {image}: {one}" for one in sorted(ours - theirs))
    yield from (f"only in {native}: {one}" for one in sorted(theirs - ours))


def _docker(*words: str) -> str:
    return subprocess.run(["docker", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    differences = [*faults(*sys.argv[1:])]
    print("\n".join(differences))
    sys.exit(1 if differences else 0)
