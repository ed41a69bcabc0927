"""Spark integration: reads, writes and copies topics. `spark.read.format("oncelog")`, mirror,
audit, table.

    from oncelog.spark import ensure_java

Needs the extra `spark`. Importing this package imports neither PySpark nor Arrow.
"""

from oncelog.spark.auditing.report import AuditReport
from oncelog.spark.auditing.run import audit
from oncelog.spark.java import ensure_java
from oncelog.spark.joined import table
from oncelog.spark.mirroring.query import mirror
from oncelog.spark.source.progress import lag

__all__ = ["AuditReport", "audit", "ensure_java", "lag", "mirror", "table"]
