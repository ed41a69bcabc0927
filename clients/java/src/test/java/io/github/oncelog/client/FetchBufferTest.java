package io.github.oncelog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.google.protobuf.ByteString;
import io.github.oncelog.client.FetchBuffer.Added;
import io.github.oncelog.client.FetchBuffer.Wanted;
import io.github.oncelog.client.proto.BatchHeader;
import io.github.oncelog.client.proto.PartitionError;
import io.github.oncelog.client.proto.PartitionRecords;
import io.github.oncelog.client.proto.StoredBatch;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Order of records, errors and seeks in a consumer's buffer. */
class FetchBufferTest {
  private static final TopicPartition A = new TopicPartition("t", 0);
  private static final TopicPartition B = new TopicPartition("t", 1);
  private static final OncelogException GONE =
      new OncelogException(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, "gone");
  private static final PartitionRecords OUT_OF_RANGE =
      PartitionRecords.newBuilder()
          .setError(PartitionError.PARTITION_ERROR_OFFSET_OUT_OF_RANGE)
          .setLogStartOffset(9)
          .build();

  private int rooms;
  private final FetchBuffer buffer = new FetchBuffer(1000, () -> rooms++, topic -> 0);

  private void assign(TopicPartition... tps) {
    buffer.assign(List.of(tps));
    for (TopicPartition tp : tps) {
      buffer.seek(tp, 0);
    }
    rooms = 0;
  }

  private Wanted wanted(TopicPartition tp) {
    return buffer.wanted().stream().filter(w -> w.tp().equals(tp)).findAny().orElseThrow();
  }

  private static PartitionRecords stored(long base, int count) {
    return PartitionRecords.newBuilder()
        .addBatches(
            StoredBatch.newBuilder()
                .setBaseOffset(base)
                .setHeader(BatchHeader.newBuilder().setRecordCount(count))
                .setPayload(ByteString.copyFrom(new byte[10])))
        .build();
  }

  /** The base offset of the next chunk, which is taken. */
  private long take(TopicPartition tp) {
    Chunk chunk = buffer.peek(true, 0);
    assertEquals(tp, chunk.tp);
    chunk.next = chunk.end;
    buffer.advance(chunk);
    return chunk.base;
  }

  @Test
  void aFetchAheadOutOfRangeIsAskedAgainWhenTheRecordsBeforeItAreTaken() {
    assign(A);
    assertEquals(Added.OK, buffer.add(wanted(A), stored(0, 2)));
    assertEquals(Added.OK, buffer.add(wanted(A), stored(2, 1)));
    Wanted ahead = wanted(A);
    assertEquals(Added.STALE, buffer.add(ahead, OUT_OF_RANGE));
    assertEquals(List.of(), buffer.wanted());
    assertEquals(0, take(A));
    assertEquals(List.of(), buffer.wanted());
    assertEquals(0, rooms);
    assertEquals(2, take(A));
    assertEquals(List.of(ahead), buffer.wanted());
    assertEquals(1, rooms, "the fetcher is told");
    assertEquals(Added.REFUSED, buffer.add(ahead, OUT_OF_RANGE));
    assertEquals(Added.OK, buffer.add(ahead, stored(3, 1)));
    assertEquals(4, wanted(A).offset(), "nothing is held up later");
  }

  @Test
  void recordsComeBeforeAnErrorBehindThemAndHideNoErrorOfAnotherPartition() {
    assign(A, B);
    Wanted other = wanted(B);
    buffer.add(wanted(A), stored(0, 2));
    buffer.fail(A, buffer.generation(A), GONE);
    assertEquals(0, take(A));
    buffer.add(other, stored(0, 1));
    assertEquals(B, buffer.peek(false, 0).tp, "an error waits for the next call");
    assertSame(GONE, assertThrows(OncelogException.class, () -> buffer.peek(true, 0)));
    assertEquals(0, take(B));
  }

  @Test
  void partitionsFailInTurn() {
    assign(A, B);
    OncelogException other = new OncelogException(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, "too");
    buffer.fail(A, buffer.generation(A), GONE);
    buffer.fail(B, buffer.generation(B), other);
    assertSame(GONE, assertThrows(OncelogException.class, () -> buffer.peek(true, 0)));
    buffer.fail(A, buffer.generation(A), GONE);
    assertSame(other, assertThrows(OncelogException.class, () -> buffer.peek(true, 0)));
    assertSame(GONE, assertThrows(OncelogException.class, () -> buffer.peek(true, 0)));
  }

  @Test
  void aSeekWinsAgainstAnAnswerFromBeforeIt() {
    ConsumerConfig config = new ConsumerConfig("127.0.0.1:1").autoOffsetReset(OffsetReset.EARLIEST);
    Cluster cluster = new Cluster(config);
    Fetcher fetcher = new Fetcher(config, cluster);
    try {
      fetcher.buffer.assign(List.of(A));
      fetcher.buffer.seek(A, 3);
      Wanted before = new Wanted(A, 0, 3, fetcher.buffer.generation(A));
      fetcher.buffer.seek(A, 7); // between the check of the answer and its reset
      fetcher.refused(before, OUT_OF_RANGE, "a:1");
      assertEquals(7, fetcher.buffer.position(A, 0));
    } finally {
      fetcher.stop();
      cluster.close();
    }
  }
}
