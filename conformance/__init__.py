"""Conformance kit: cases, a broker that lies by script, and a runner for clients."""
