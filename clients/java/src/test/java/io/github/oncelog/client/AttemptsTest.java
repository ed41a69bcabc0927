package io.github.oncelog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.github.oncelog.client.OncelogException.Outcome;
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
  void aRecordIsToldTheRefusalAndWhatCameAfterIt() {
    Obstacles obstacles = new Obstacles();
    obstacles.met("n1: no answer yet");
    obstacles.told("n1: STORAGE_FULL");
    assertEquals("n1: STORAGE_FULL", obstacles.toString());
    obstacles.met("n1: gone", timeout());
    assertEquals("n1: STORAGE_FULL; n1: gone", obstacles.toString());
  }
}
