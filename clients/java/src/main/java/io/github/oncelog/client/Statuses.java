package io.github.oncelog.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.CodedInputStream;
import com.google.protobuf.WireFormat;
import io.github.oncelog.client.proto.BatchResult;
import io.github.oncelog.client.proto.Verdict;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.io.IOException;
import java.net.ConnectException;
import java.nio.channels.ClosedChannelException;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.Map;

/** Meaning of statuses and verdicts of nodes. */
final class Statuses {
  private static final Metadata.Key<byte[]> STATUS_DETAILS =
      Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);

  private static final String ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo";

  /**
   * Meaning of a status without our ErrorInfo: it comes from gRPC itself, or from something in
   * between.
   */
  private static final Map<Status.Code, ErrorKind> PLAIN = new EnumMap<>(Status.Code.class);

  static {
    PLAIN.put(Status.Code.UNAVAILABLE, ErrorKind.UNAVAILABLE);
    PLAIN.put(Status.Code.CANCELLED, ErrorKind.UNAVAILABLE);
    PLAIN.put(Status.Code.DEADLINE_EXCEEDED, ErrorKind.REQUEST_TIMEOUT);
    // A message beyond a limit, most often: the same again would end the same way.
    PLAIN.put(Status.Code.RESOURCE_EXHAUSTED, ErrorKind.INVALID_REQUEST);
    PLAIN.put(Status.Code.INVALID_ARGUMENT, ErrorKind.INVALID_REQUEST);
    PLAIN.put(Status.Code.OUT_OF_RANGE, ErrorKind.INVALID_REQUEST);
    PLAIN.put(Status.Code.UNIMPLEMENTED, ErrorKind.NOT_SUPPORTED);
    PLAIN.put(Status.Code.DATA_LOSS, ErrorKind.CORRUPT_LOG);
  }

  private Statuses() {}

  /** The error that a failed call to a node stands for. */
  static OncelogException error(String address, Throwable failure) {
    if (failure instanceof StatusRuntimeException e) {
      return error(address, e.getStatus(), e.getTrailers());
    }
    return error(address, Status.fromThrowable(failure), Status.trailersFromThrowable(failure));
  }

  /** Whether a node of this cluster has said so: not gRPC itself, or something in between. */
  static boolean isAnswer(Status status, Metadata trailers) {
    ErrorKind kind = isClosedChannel(status) ? ErrorKind.UNAVAILABLE : PLAIN.get(status.getCode());
    boolean silent = kind == ErrorKind.UNAVAILABLE || kind == ErrorKind.REQUEST_TIMEOUT;
    byte[] details = trailers == null ? null : trailers.get(STATUS_DETAILS);
    Info info = details == null ? null : Info.read(details);
    boolean told = info != null && info.domain.equals("oncelog");
    return told ? !info.reason.equals(ErrorKind.OTHER_CLUSTER.name()) : !silent;
  }

  static OncelogException error(String address, Status status, Metadata trailers) {
    if (status.getCause() instanceof OncelogException own) {
      return own;
    }
    String text = status.getDescription() == null ? "" : status.getDescription();
    byte[] details = trailers == null ? null : trailers.get(STATUS_DETAILS);
    if (details != null) {
      Info info = Info.read(details);
      if (info != null && info.domain.equals("oncelog")) {
        return info.error(text).told();
      }
    }
    ErrorKind kind = isClosedChannel(status) ? ErrorKind.UNAVAILABLE : PLAIN.get(status.getCode());
    if (kind == null) {
      return new OncelogException(
          ErrorKind.INTERNAL, "%s: %s: %s", address, status.getCode(), text);
    }
    if (status.getCause() instanceof ConnectException) {
      return new OncelogException(kind, "%s: failed to connect: %s", address, text).unsent();
    }
    return new OncelogException(kind, "%s: %s", address, text);
  }

  /** A lost connection, for which gRPC's Netty transport says UNKNOWN at times. */
  private static boolean isClosedChannel(Status status) {
    return status.getCode() == Status.Code.UNKNOWN
        && status.getCause() instanceof ClosedChannelException;
  }

  /** A google.rpc.ErrorInfo. Read by hand: its classes would bring the larger runtime. */
  private static final class Info {
    String reason = "";
    String domain = "";
    final Map<String, String> metadata = new HashMap<>();

    /** The first one of a google.rpc.Status; null: there is none. */
    static Info read(byte[] status) {
      try {
        CodedInputStream in = CodedInputStream.newInstance(status);
        for (int tag; (tag = in.readTag()) != 0; ) {
          if (WireFormat.getTagFieldNumber(tag) == 3) { // details
            Info info = readAny(in.readBytes().newCodedInput());
            if (info != null) {
              return info;
            }
          } else {
            in.skipField(tag);
          }
        }
        return null;
      } catch (IOException e) {
        return null; // not from a node of ours
      }
    }

    private static Info readAny(CodedInputStream in) throws IOException {
      String type = "";
      ByteString value = ByteString.EMPTY;
      for (int tag; (tag = in.readTag()) != 0; ) {
        switch (WireFormat.getTagFieldNumber(tag)) {
          case 1 -> type = in.readString();
          case 2 -> value = in.readBytes();
          default -> in.skipField(tag);
        }
      }
      if (!type.equals(ERROR_INFO)) {
        return null;
      }
      Info info = new Info();
      info.readInfo(value.newCodedInput());
      return info;
    }

    private void readInfo(CodedInputStream in) throws IOException {
      for (int tag; (tag = in.readTag()) != 0; ) {
        switch (WireFormat.getTagFieldNumber(tag)) {
          case 1 -> reason = in.readString();
          case 2 -> domain = in.readString();
          case 3 -> {
            CodedInputStream entry = in.readBytes().newCodedInput();
            String name = "";
            String value = "";
            for (int field; (field = entry.readTag()) != 0; ) {
              switch (WireFormat.getTagFieldNumber(field)) {
                case 1 -> name = entry.readString();
                case 2 -> value = entry.readString();
                default -> entry.skipField(field);
              }
            }
            metadata.put(name, value);
          }
          default -> in.skipField(tag);
        }
      }
    }

    private long number(String name, long none) {
      try {
        return Long.parseLong(metadata.getOrDefault(name, ""));
      } catch (NumberFormatException e) {
        return none;
      }
    }

    OncelogException error(String message) {
      ErrorKind kind = ErrorKind.of(reason);
      if (kind == null) {
        // A newer server: its own word says whether to retry.
        kind =
            "true".equals(metadata.get("retriable")) ? ErrorKind.UNAVAILABLE : ErrorKind.INTERNAL;
        return new OncelogException(kind, "%s: %s", reason, message);
      }
      Detail detail = new Detail();
      detail.topic = metadata.get("topic");
      detail.partition = (int) number("partition", -1);
      detail.offset = number("offset", -1);
      detail.logStartOffset = number("log_start_offset", -1);
      detail.highWatermark = number("high_watermark", -1);
      detail.nextOffset = number("next_offset", -1);
      detail.lastSequence = number("last_sequence", -1);
      detail.currentEpoch = (int) number("current_epoch", -1);
      detail.leaderId = (int) number("leader_id", 0);
      detail.leaderAddress = metadata.getOrDefault("leader_address", "");
      detail.producerName = metadata.get("producer_name");
      detail.field = metadata.get("field");
      detail.limit = metadata.get("limit");
      detail.principal = metadata.get("principal");
      detail.operation = metadata.get("operation");
      detail.kind = metadata.get("kind");
      detail.name = metadata.get("name");
      return new OncelogException(kind, "%s", message).with(detail);
    }
  }

  /** Whether it is a success: a verdict's number gives its class. */
  static boolean stored(Verdict verdict) {
    int number = verdict == Verdict.UNRECOGNIZED ? 0 : verdict.getNumber();
    return 0 < number && number < 10;
  }

  /** The verdict, and the node's message. */
  static String answerText(BatchResult result) {
    String name = result.getVerdict().name().replace("VERDICT_", "");
    return result.getMessage().isEmpty() ? name : name + ": " + result.getMessage();
  }

  static boolean retriable(Verdict verdict) {
    return verdict != Verdict.UNRECOGNIZED && verdict.getNumber() >= 30;
  }

  /** The kind of a final verdict, by its name; null: this client does not know it. */
  static ErrorKind kind(Verdict verdict) {
    return ErrorKind.of(verdict.name().replace("VERDICT_", ""));
  }

  /**
   * The error of a verdict that is neither a success nor retriable. One that this client does not
   * know counts as an invalid batch: it must not be repeated blindly.
   */
  static OncelogException error(BatchResult result, TopicPartition tp) {
    ErrorKind known = kind(result.getVerdict());
    ErrorKind kind = known == null ? ErrorKind.INVALID_BATCH : known;
    String text = result.getMessage();
    if (text.isEmpty()) {
      text = "verdict " + result.getVerdictValue();
    }
    text +=
        switch (kind) {
          case FENCED ->
              " (current epoch " + result.getCurrentEpoch() + "): another producer has taken over";
          case OUT_OF_ORDER -> " (last stored sequence " + result.getLastSequence() + ")";
          case OFFSET_MISMATCH -> " (next offset " + result.getNextOffset() + ")";
          default -> "";
        };
    return new OncelogException(kind, "%s: %s", tp, text)
        .with(
            new Detail()
                .at(tp)
                .epoch(result.getCurrentEpoch())
                .lastSequence(result.getLastSequence())
                .nextOffset(result.getNextOffset()));
  }
}
