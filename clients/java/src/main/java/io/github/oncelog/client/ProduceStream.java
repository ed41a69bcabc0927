package io.github.oncelog.client;

import io.github.oncelog.client.proto.Batch;
import io.github.oncelog.client.proto.BatchResult;
import io.github.oncelog.client.proto.LogServiceGrpc;
import io.github.oncelog.client.proto.ProduceRequest;
import io.github.oncelog.client.proto.ProduceResponse;
import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.ConnectivityState;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * One ordered stream of batches to one node. It connects before it reports itself open, so a batch
 * that is handed over has somewhere to go; a batch for a node that cannot be reached is never
 * sealed. Used on the sender's thread only; gRPC's events are posted there.
 */
final class ProduceStream {
  private static final Set<ErrorKind> FINAL =
      Set.of(ErrorKind.NOT_AUTHORIZED, ErrorKind.UNAUTHENTICATED);

  // Several small batches share a message up to this size, and this number.
  private static final long MESSAGE_BYTES = 1 << 20;
  private static final int MESSAGE_BATCHES = 1000;

  // No more is handed to the connection than this before it has taken the batches in hand: a batch
  // that waits in the accumulator can still grow, one that waits here cannot.
  private static final long BACKLOG_BYTES = 4 << 20;

  /** An attempt that waits for its answer. */
  record Waiting(Window window, SealedBatch batch) {}

  /** A stream's reports to the sender, on the sender's thread. */
  interface Events {
    void opened(ProduceStream stream);

    void results(ProduceStream stream, List<BatchResult> results);

    void closed(ProduceStream stream, String why);
  }

  final String address;
  final Map<Long, Waiting> outstanding = new HashMap<>();

  /** Why the node will take none of this, however often it is sent; null: it may. */
  OncelogException refused;

  /** The status that it has ended with; null: it never opened. */
  OncelogException ended;

  private final ManagedChannel channel;
  private final Loop loop;
  private final Events events;
  private final int commitTimeoutMs;
  private final long connectUntil;
  private final ArrayDeque<Batch> outbox = new ArrayDeque<>();
  private long backlog;
  private ClientCall<ProduceRequest, ProduceResponse> call;
  private boolean closed;

  ProduceStream(
      String address,
      ManagedChannel channel,
      Loop loop,
      Events events,
      int commitTimeoutMs,
      long connectUntil) {
    this.address = address;
    this.channel = channel;
    this.loop = loop;
    this.events = events;
    this.commitTimeoutMs = commitTimeoutMs;
    this.connectUntil = connectUntil;
    watch();
  }

  boolean opened() {
    return call != null && !closed;
  }

  boolean hasRoom() {
    return opened() && backlog < BACKLOG_BYTES;
  }

  // --- connecting --------------------------------------------------------------------

  private void watch() {
    ConnectivityState state = channel.getState(true);
    if (state != ConnectivityState.READY) {
      channel.notifyWhenStateChanged(state, () -> loop.post(this::connecting));
    } else if (call == null) {
      open();
    }
  }

  private void connecting() {
    if (!closed && call == null) {
      watch();
    }
  }

  /** As time passes: tries again to connect, or gives up. */
  void tick(long now) {
    if (closed || call != null) {
      return;
    }
    if (now >= connectUntil) {
      closed = true;
      loop.post(() -> events.closed(this, "no connection"));
    } else if (channel.getState(false) == ConnectivityState.TRANSIENT_FAILURE) {
      channel.resetConnectBackoff();
    }
  }

  private void open() {
    call = channel.newCall(LogServiceGrpc.getProduceStreamMethod(), CallOptions.DEFAULT);
    call.start(
        new ClientCall.Listener<>() {
          @Override
          public void onMessage(ProduceResponse response) {
            loop.post(
                () -> {
                  events.results(ProduceStream.this, response.getResultsList());
                  call.request(1);
                });
          }

          @Override
          public void onReady() {
            loop.post(ProduceStream.this::write);
          }

          @Override
          public void onClose(Status status, Metadata trailers) {
            loop.post(
                () -> {
                  closed = true;
                  ended = Statuses.error(address, status, trailers);
                  refused = FINAL.contains(ended.kind()) ? ended : null;
                  String text = status.getDescription();
                  String why = text == null ? status.getCode().name() : text;
                  events.closed(ProduceStream.this, why);
                });
          }
        },
        new Metadata());
    call.request(4);
    loop.post(() -> events.opened(this));
  }

  /** Gives the stream up; that it is closed is said soon. */
  void close(String why) {
    if (call == null) {
      closed = true;
    } else if (!closed) {
      call.cancel(why, null);
    }
  }

  // --- sending -----------------------------------------------------------------------

  void send(Window window, SealedBatch batch, long attemptId) {
    outstanding.put(attemptId, new Waiting(window, batch));
    outbox.add(batch.message(attemptId));
    backlog += batch.size();
  }

  /** Hands over the batches that the connection takes now. */
  void write() {
    while (!outbox.isEmpty() && opened() && call.isReady()) {
      ProduceRequest.Builder request = ProduceRequest.newBuilder().setTimeoutMs(commitTimeoutMs);
      long size = 0;
      while (!outbox.isEmpty() && request.getBatchesCount() < MESSAGE_BATCHES) {
        Batch batch = outbox.peek();
        long more = batch.getPayload().size() + batch.getLeaseToken().size() + 100L;
        if (size > 0 && size + more > MESSAGE_BYTES) {
          break;
        }
        size += more;
        request.addBatches(outbox.poll());
      }
      backlog -= size;
      call.sendMessage(request.build());
    }
  }
}
