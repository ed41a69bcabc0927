package io.github.oncelog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Status;
import java.nio.channels.ClosedChannelException;
import org.junit.jupiter.api.Test;

/** Statuses that gRPC makes by itself. */
class StatusesTest {
  @Test
  void aConnectionThatIsLostIsWorthARetryWhateverGrpcCallsIt() {
    Status lost =
        Status.UNKNOWN.withDescription("channel closed").withCause(new ClosedChannelException());
    OncelogException error = Statuses.error("127.0.0.1:1", lost, null);
    assertEquals(ErrorKind.UNAVAILABLE, error.kind());
    assertTrue(error.isRetriable());
  }

  @Test
  void whatNobodyKnowsIsNot() {
    OncelogException error = Statuses.error("127.0.0.1:1", Status.UNKNOWN, null);
    assertEquals(ErrorKind.INTERNAL, error.kind());
    assertFalse(error.isRetriable());
  }
}
