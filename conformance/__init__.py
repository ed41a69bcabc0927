"""The conformance kit: cases, a broker that lies by script, and who runs clients against it."""
