package io.github.oncelog.client;

import com.google.protobuf.ByteString;
import io.github.oncelog.client.proto.BatchHeader;
import io.github.oncelog.client.proto.StoredBatch;
import java.util.List;

/** One stored batch that was fetched, decoded when it is first looked at. */
final class Chunk {
  final TopicPartition tp;
  final long base;
  final long end;
  final int generation;
  final int bytes;
  long next; // the user's place in it
  private final BatchHeader header;
  private final boolean carried; // compaction made it: some of its records may be blanks
  private ByteString raw;
  private Payload payload;

  Chunk(TopicPartition tp, StoredBatch stored, long next, int generation) {
    this.tp = tp;
    header = stored.getHeader();
    carried = stored.getCarried();
    raw = stored.getPayload();
    base = stored.getBaseOffset();
    this.next = next;
    this.generation = generation;
    end = base + header.getRecordCount();
    bytes = raw.size();
  }

  /** Decodes the batch. An error stays: nothing of the batch is ever skipped. */
  void open(boolean checkCrc) {
    if (payload != null) {
      return;
    }
    try {
      byte[] data = raw.toByteArray();
      if (checkCrc && Codecs.checksum(data) != header.getCrc32C()) {
        throw new OncelogException(ErrorKind.INVALID_BATCH, "checksum differs");
      }
      payload = new Payload(Codecs.decompress(header.getCodec(), data), header.getRecordCount());
      raw = null;
    } catch (OncelogException e) {
      throw Detail.corrupt(tp, base, "batch at offset %d: %s", base, e.getMessage());
    }
  }

  /** Adds up to limit records from the user's place on, which passes over blanks. */
  void take(List<StoredRecord> into, int limit) {
    for (; next < end; next++) {
      int row = (int) (next - base);
      if (carried && payload.isBlank(row)) {
        continue;
      }
      if (limit-- == 0) {
        return;
      }
      into.add(payload.record(tp, next, row));
    }
  }
}
