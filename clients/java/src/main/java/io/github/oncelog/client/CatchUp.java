package io.github.oncelog.client;

import io.github.oncelog.client.FetchBuffer.Wanted;
import io.github.oncelog.client.proto.FetchResponse;
import io.github.oncelog.client.proto.LogServiceGrpc;
import io.github.oncelog.client.proto.PartitionFetch;
import io.github.oncelog.client.proto.PartitionRecords;
import io.github.oncelog.client.proto.StoredBatch;
import io.github.oncelog.client.proto.SubscribeRequest;
import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Metadata;
import io.grpc.Status;

/**
 * Reads stored records by a stream instead of question and answer. Where a poll's answer was cut
 * short because there is more, the partition is subscribed to, and polled again when all that there
 * was has come, or something happened that a poll deals with. So at the end of the log, where a
 * node may have nothing to say for long and lose its office meanwhile, there are only polls. Used
 * on the fetcher's thread only.
 */
final class CatchUp {
  // Enough that a message costs little beside its bytes, and no more, because a node sends one
  // while it collects the next.
  private static final int SUBSCRIBE_BYTES = 2 << 20;

  // Where there is more to read, silence is a reason to poll, which looks for the leader.
  private static final long SILENCE = 2 * Times.SECOND;

  /** How a stream ended: the part still wanted, and the node's refusal, if there was one. */
  interface Ended {
    void ended(CatchUp stream, Wanted wanted, PartitionRecords refused);
  }

  final String address;
  private final ConsumerConfig config;
  private final Cluster cluster;
  private final FetchBuffer buffer;
  private final Loop loop;
  private final Ended ended;
  private Wanted wanted;
  private ClientCall<SubscribeRequest, FetchResponse> call;
  private long askedAt; // NEVER: nothing is asked for
  private boolean over;

  CatchUp(
      ConsumerConfig config,
      Cluster cluster,
      FetchBuffer buffer,
      Loop loop,
      String address,
      Wanted wanted,
      Ended ended) {
    this.config = config;
    this.cluster = cluster;
    this.buffer = buffer;
    this.loop = loop;
    this.address = address;
    this.wanted = wanted;
    this.ended = ended;
    askedAt = Times.NEVER;
  }

  /** Whether a poll's answer was cut short because there is more. */
  static boolean worthIt(ConsumerConfig config, PartitionRecords records) {
    long size = 0;
    for (StoredBatch stored : records.getBatchesList()) {
      size += stored.getPayload().size();
    }
    int enough = Math.min(config.maxPartitionFetchBytes(), config.fetchMaxBytes()) / 2;
    return size > 0 && size >= enough && end(records) < records.getHighWatermark();
  }

  /** The offset behind the last batch. */
  static long end(PartitionRecords records) {
    StoredBatch last = records.getBatches(records.getBatchesCount() - 1);
    return last.getBaseOffset() + last.getHeader().getRecordCount();
  }

  int generation() {
    return wanted.generation();
  }

  /** Reads on if there is room; ends if it is silent or nobody wants it any more. */
  void work(long now) {
    if (over) {
      return;
    }
    if (askedAt != Times.NEVER) {
      if (now - askedAt > SILENCE) {
        stop(null);
      }
      return;
    }
    Boolean room = buffer.room(wanted);
    if (room == null) {
      stop(null);
    } else if (room) {
      if (call == null) {
        // The buffer was full, most likely: only a reader that continues gets a stream.
        open();
      }
      askedAt = now;
      call.request(1);
    }
  }

  private void open() {
    int bytes =
        Math.min(
            SUBSCRIBE_BYTES, Math.min(config.maxPartitionFetchBytes(), config.fetchMaxBytes()));
    SubscribeRequest request =
        SubscribeRequest.newBuilder()
            .addPartitions(
                PartitionFetch.newBuilder()
                    .setTopic(wanted.tp().topic())
                    .setPartition(wanted.tp().partition())
                    .setOffset(wanted.offset()))
            .setMaxBytes(bytes)
            .setAnyReplica(config.anyReplica())
            .setNear(config.rack() != null)
            .build();
    call =
        cluster.channel(address).newCall(LogServiceGrpc.getSubscribeMethod(), CallOptions.DEFAULT);
    call.start(
        new ClientCall.Listener<>() {
          @Override
          public void onMessage(FetchResponse message) {
            loop.post(() -> take(message));
          }

          @Override
          public void onClose(Status status, Metadata trailers) {
            loop.post(() -> stop(null)); // a poll will find out
          }
        },
        new Metadata());
    call.sendMessage(request);
    call.halfClose();
  }

  private void take(FetchResponse message) {
    askedAt = Times.NEVER;
    for (PartitionRecords records : message.getPartitionsList()) {
      if (over) {
        return;
      }
      switch (buffer.add(wanted, records)) {
        case REFUSED -> stop(records);
        case STALE, ANEW, BEHIND -> stop(null); // a poll tells why
        case OK -> {
          if (records.getBatchesCount() == 0) {
            stop(null);
          } else {
            long offset = end(records);
            wanted = new Wanted(wanted.tp(), wanted.group(), offset, wanted.generation());
            if (offset >= records.getHighWatermark()) {
              stop(null);
            }
          }
        }
      }
    }
  }

  /** Gives it up; nobody hears of its end. */
  void cancel() {
    over = true;
    if (call != null) {
      call.cancel("given up by the client", null);
    }
  }

  private void stop(PartitionRecords refused) {
    if (!over) {
      cancel();
      ended.ended(this, wanted, refused);
    }
  }
}
