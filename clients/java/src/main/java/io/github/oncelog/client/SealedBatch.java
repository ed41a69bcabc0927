package io.github.oncelog.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import io.github.oncelog.client.proto.Batch;
import io.github.oncelog.client.proto.BatchHeader;

/** A batch on its way. Sent batches never change; the rest is the state of its sending. */
final class SealedBatch {
  final OpenBatch batch;
  final long lastSequence;
  final long prevSequence;
  long deadline;
  private final BatchHeader header;
  private final ByteString leaseToken;
  private final ByteString payload;

  int attempts;
  long attemptId; // 0: no attempt with an awaited answer
  long sentAt;
  long firstSentAt;
  boolean ambiguous; // some attempt ended without an answer that tells its outcome,
  boolean unanswered; // or without any answer from the node in its time
  boolean sentAsHead; // all before it was acknowledged when it was last sent
  boolean refused; // answered OUT_OF_ORDER while an earlier batch was being retried
  boolean acked;

  // Its records have failed (delivery timeout), but it holds the chain for successors.
  boolean abandoned;

  /** Numbers a batch; prev is the last sequence before it. */
  SealedBatch(OpenBatch batch, Identity identity, long prev, long deadline, Compression codec) {
    this.batch = batch;
    this.deadline = deadline;
    prevSequence = prev;
    payload = UnsafeByteOperations.unsafeWrap(batch.payload);
    BatchHeader.Builder header =
        BatchHeader.newBuilder()
            .setTopic(batch.lane.tp.topic())
            .setPartition(batch.lane.tp.partition())
            .setRecordCount(batch.count)
            .setCodec(codec.codec)
            .setCrc32C(batch.crc)
            .setMaxTimestampUs(batch.maxTimestamp);
    if (batch.expectedOffset >= 0) {
      header.setExpectedOffset(batch.expectedOffset);
    }
    if (batch.transaction != null) {
      assert batch.transaction.producerId == identity.producerId() : "a name has one id";
      header.setTransactionId(batch.transaction.id);
    }
    long base = -1;
    long last = -1;
    if (identity.producerId() != 0) {
      long[] given = batch.sequences;
      base = given == null ? prev + 1 : given[0];
      last = given == null ? prev + batch.count : given[given.length - 1];
      header.setProducerId(identity.producerId()).setEpoch(identity.epoch()).setBaseSequence(base);
      if (last != base + batch.count - 1) {
        header.setLastSequence(last);
      }
      if (prev != base - 1) {
        header.setPrevSequence(prev);
      }
    }
    lastSequence = last;
    boolean proves = identity.producerId() != 0 && (prev == -1 || identity.provesEach());
    leaseToken = proves ? identity.leaseToken() : ByteString.EMPTY;
    this.header = header.build();
    batch.delivery.stamp = new BatchDelivery.Stamp(identity.producerId(), identity.epoch(), base);
  }

  int size() {
    return payload.size() + leaseToken.size() + 100;
  }

  /** An attempt to be sent: the same each time but for the id. */
  Batch message(long attemptId) {
    return Batch.newBuilder()
        .setHeader(header)
        .setPayload(payload)
        .setId(attemptId)
        .setLeaseToken(leaseToken)
        .build();
  }
}
