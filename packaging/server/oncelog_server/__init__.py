"""The node's packages are in the folder `private`, which only `oncelog server` has on its path."""
