"""Identity and permissions of a connection's other side: see README.md."""
