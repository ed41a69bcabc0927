package io.github.oncelog.client;

import java.util.Arrays;

/** Records of one partition that will be one batch. */
final class OpenBatch {
  final Lane lane;
  final BatchDelivery delivery;
  long created;
  final int cap; // never larger than this with more than one record
  final ProducerTransaction transaction; // that it belongs to; null: none
  Columns columns; // null once it is encoded
  int size = Columns.BATCH_OVERHEAD;
  boolean due;
  boolean isClosed;
  boolean old; // it has waited for so long that further records would have too little time
  long[] sequences;
  long expectedOffset = -1;
  int count;

  // The payload as it is sent. It outlives a change of sequences.
  byte[] payload;
  int crc;
  long maxTimestamp;

  OpenBatch(Lane lane, long created, int cap, ProducerTransaction transaction, byte[] room) {
    this.lane = lane;
    this.created = created;
    this.cap = cap;
    this.transaction = transaction;
    columns = new Columns(room);
    delivery = new BatchDelivery(lane.tp);
  }

  void putOff(long late, long now) {
    created = Math.min(created + late, now);
  }

  void addSequences(long[] more) {
    int before = sequences == null ? 0 : sequences.length;
    sequences = sequences == null ? more : Arrays.copyOf(sequences, before + more.length);
    System.arraycopy(more, 0, sequences, before, more.length);
  }

  /** Makes the payload, once; returns room for another batch, or null. */
  byte[] encode(Compression compression, Integer level) {
    byte[] room = null;
    if (payload == null) {
      payload = Codecs.compress(compression, level, columns.encode());
      crc = Codecs.checksum(payload);
      maxTimestamp = columns.maxTimestamp();
      room = columns.room();
      columns = null;
    }
    return room;
  }
}
