"""`python -m cluster`: one node, or the processes of a machine, until a stopping signal.

Exit codes: 0 stopped as asked, 1 failed while running or at start, 2 bad settings,
or a Python that leaves out assertions, 3 removed from the cluster.
"""

from __future__ import annotations

import os
import sys

from cluster.startup import prepare


def main() -> int:
    prepare()
    # After signals are handled.
    from cluster.config.node_config import NodeConfig
    from cluster.config.processes import check_processes, of_process
    from cluster.errors import ConfigError

    if not __debug__:  # the invariants of a node are assertions
        text = "assertions are off: start the node without python -O and PYTHONOPTIMIZE"
        print(f"oncelog: {text}", file=sys.stderr)
        return 2
    try:
        config = NodeConfig.load(sys.argv[1:], os.environ)
        if config.process is not None:
            config = of_process(config, config.process)
        elif config.processes > 1:
            check_processes(config)
    except ConfigError as error:
        print(f"oncelog: {error}", file=sys.stderr)
        return 2
    if config.print_config:
        print(config.describe())
        return 0
    if config.processes > 1 and config.process is None:
        from cluster.machine.supervisor import supervise

        return supervise(config)
    from cluster.node.process import run

    return run(config)


if __name__ == "__main__":
    sys.exit(main())
