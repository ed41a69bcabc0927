"""Names that `import oncelog` gives, and modules that it does not yet import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import oncelog
from oncelog import errors


def modules_after(program: str) -> set[str]:
    """The modules of ours that a fresh interpreter has imported at the end of a program."""
    program += "\nimport sys\nprint(*(name for name in sys.modules if name.startswith('oncelog')))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stdout.split())


def test_a_node_imports_its_stubs_without_the_client() -> None:
    found = modules_after("import cluster.node.node")
    assert "oncelog.v1.log_pb2" in found
    assert not found & {"oncelog.producer", "oncelog.consumer", "oncelog.admin", "oncelog._engine"}


@pytest.mark.parametrize("name", ["Admin", "Consumer", "Producer"])
def test_a_client_is_imported_when_it_is_asked_for(name: str) -> None:
    assert "oncelog._engine" not in modules_after("import oncelog")
    found = modules_after(f"from oncelog import {name}\nassert {name}.__name__ == {name!r}")
    assert {"oncelog._engine", f"oncelog.{name.lower()}"} <= found


def test_all_names_are_listed_and_a_star_takes_them() -> None:
    assert set(oncelog.__all__) <= set(dir(oncelog))
    taken: dict[str, object] = {}
    exec("from oncelog import *", taken)
    assert set(oncelog.__all__) <= taken.keys()
    assert taken["Producer"] is oncelog.Producer


def test_every_error_is_exported_and_stands_in_the_tree_of_errors() -> None:
    found = [value for name, value in vars(errors).items() if name.endswith("Error")]
    assert len(found) > 50
    for error in found:
        assert getattr(oncelog, error.__name__) is error and error.__name__ in oncelog.__all__
        assert error.__name__ in (errors.__doc__ or "")
        branches = (errors.RetriableError, errors.FatalError, errors.ConfigError)
        count = sum(issubclass(error, branch) for branch in branches)
        assert count == (0 if error is errors.OncelogError else 1)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Gone'"):
        oncelog.Gone  # type: ignore[attr-defined]  # noqa: B018
