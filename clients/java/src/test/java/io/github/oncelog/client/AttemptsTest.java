package io.github.oncelog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.oncelog.client.OncelogException.Outcome;
import io.grpc.Status;
import java.net.ConnectException;
import org.junit.jupiter.api.Test;

class AttemptsTest {
  private static Attempts failed(OncelogException... errors) {
    Attempts attempts = new Attempts();
    for (OncelogException error : errors) {
      attempts.failed(error);
    }
    return attempts;
  }

  private static OncelogException timeout() {
    return new OncelogException(ErrorKind.REQUEST_TIMEOUT, "n1: too late");
  }

  @Test
  void aTimeoutHidesNoRefusal() {
    OncelogException refusal =
        new OncelogException(ErrorKind.NOT_LEADER, "not here").with(leader()).told();
    OncelogException told = failed(refusal, timeout()).error();
    assertEquals(ErrorKind.NOT_LEADER, told.kind());
    assertEquals("n2", told.details().leaderAddress());
    assertEquals("not here; the last attempt: n1: too late", told.getMessage());
    assertEquals(Outcome.UNKNOWN, told.outcome());
    assertNull(refusal.outcome());

    OncelogException wait = new OncelogException(ErrorKind.NOT_READY, "wait").told();
    OncelogException earlier = failed(timeout(), wait).error();
    assertEquals(ErrorKind.NOT_READY, earlier.kind());
    assertEquals("wait", earlier.getMessage());
    assertEquals(Outcome.UNKNOWN, earlier.outcome());

    assertNull(failed(refusal, wait).error().outcome());
  }

  private static Detail leader() {
    Detail detail = new Detail();
    detail.leaderAddress = "n2";
    return detail;
  }

  @Test
  void aFinalAnswerSpeaksForTheLastAttemptAlone() {
    OncelogException gone =
        new OncelogException(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, "no such topic").told();
    OncelogException wait = new OncelogException(ErrorKind.NOT_READY, "wait").told();
    assertSame(gone, failed(wait).finalAnswer(gone));
    assertEquals(Outcome.UNKNOWN, failed(timeout()).finalAnswer(gone).outcome());
    assertNull(gone.outcome());

    OncelogException exists =
        new OncelogException(ErrorKind.TOPIC_ALREADY_EXISTS, "there is one").told();
    OncelogException told = failed(timeout()).finalAnswer(exists);
    assertEquals(ErrorKind.TOPIC_ALREADY_EXISTS, told.kind());
    assertEquals(
        "there is one; an earlier attempt had no answer and may have taken effect",
        told.getMessage());
    OncelogException own = new OncelogException(ErrorKind.CLIENT_CLOSED, "closed");
    assertSame(own, failed(timeout()).finalAnswer(own));
  }

  @Test
  void aLostConnectionTellsMoreThanATimeout() {
    OncelogException lost = new OncelogException(ErrorKind.UNAVAILABLE, "n1: refused");
    assertEquals(ErrorKind.UNAVAILABLE, failed(lost, timeout()).error().kind());
    assertEquals(ErrorKind.REQUEST_TIMEOUT, failed(lost, timeout()).late("no metadata").kind());
    OncelogException majority = new OncelogException(ErrorKind.UNAVAILABLE, "no majority").told();
    OncelogException late = failed(majority, lost, timeout()).late("no metadata");
    assertEquals(ErrorKind.UNAVAILABLE, late.kind());
    assertEquals("no metadata: no majority; the last attempt: n1: too late", late.getMessage());
  }

  @Test
  void aCallThatWasNotSentLeavesNoDoubt() {
    Status refused = Status.UNAVAILABLE.withCause(new ConnectException("refused"));
    OncelogException unsent = Statuses.error("n1:1", refused, null);
    assertFalse(Attempts.mayHaveBeenDone(unsent));
    assertFalse(Attempts.mayHaveBeenDone(failed(unsent).late("no metadata")));
    OncelogException text =
        new OncelogException(ErrorKind.UNAVAILABLE, "a proxy: failed to connect");
    assertTrue(Attempts.mayHaveBeenDone(text), "a text that tells of another connection");
  }

  @Test
  void aRecordIsToldTheRefusalAndWhatCameAfterIt() {
    Obstacles obstacles = new Obstacles();
    obstacles.met("n1: no answer yet");
    obstacles.told("n1: STORAGE_FULL");
    assertEquals("n1: STORAGE_FULL", obstacles.toString());
    obstacles.met("n1: gone", timeout());
    assertEquals("n1: STORAGE_FULL; n1: gone", obstacles.toString());
  }
}
