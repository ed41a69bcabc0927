"""Who is on the other side of a connection, and what it may do: see README.md."""
