package io.github.oncelog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.github.oncelog.client.OncelogException.Outcome;
import io.github.oncelog.client.ProducerTransaction.Call;
import io.github.oncelog.client.Transaction.State;
import org.junit.jupiter.api.Test;

/** How a transaction ends: no outcome is guessed. */
class ProducerTransactionTest {
  private final ProducerTransaction one = new ProducerTransaction(7, 1, 0, Times.SECOND);

  private static OncelogException error(ErrorKind kind) {
    return new OncelogException(kind, "%s", kind);
  }

  @Test
  void aCallWithoutAnAnswerIsMadeAgain() {
    assertEquals(Call.COMMIT, one.end(Call.COMMIT));
    assertEquals(Call.COMMIT, one.answered(Call.COMMIT, error(ErrorKind.UNAVAILABLE)));
    assertNull(one.answered(Call.COMMIT, null));
    assertEquals(State.COMMITTED, one.state());
  }

  @Test
  void aRefusalAfterADoubtIsLookedInto() {
    one.end(Call.COMMIT);
    one.answered(Call.COMMIT, error(ErrorKind.UNAVAILABLE));
    assertEquals(Call.ABORT, one.answered(Call.COMMIT, error(ErrorKind.COMMIT_INCOMPLETE)));
    assertEquals(Call.COMMIT, one.answered(Call.ABORT, error(ErrorKind.TRANSACTION_COMMITTED)));
    assertNull(one.answered(Call.COMMIT, error(ErrorKind.COMMIT_DIFFERS)));
    assertEquals(State.COMMITTED, one.state(), "nobody says where, but it is");
  }

  @Test
  void aRefusedCommitThatIsAbortedIsNotStored() {
    one.end(Call.COMMIT);
    assertEquals(Call.ABORT, one.answered(Call.COMMIT, error(ErrorKind.COMMIT_INCOMPLETE)));
    assertNull(one.answered(Call.ABORT, null));
    assertEquals(State.ABORTED, one.state());
    assertEquals(ErrorKind.COMMIT_INCOMPLETE, one.error().kind());
    assertEquals(Outcome.NOT_STORED, one.error().outcome());
  }

  @Test
  void whatNobodyKnowsAnyMoreIsUnknownOnlyAfterADoubt() {
    one.end(Call.COMMIT);
    one.noteDoubt();
    assertNull(one.answered(Call.COMMIT, error(ErrorKind.UNKNOWN_TRANSACTION)));
    assertEquals(State.UNKNOWN, one.state());
    assertEquals(Outcome.UNKNOWN, one.error().outcome());

    ProducerTransaction other = new ProducerTransaction(8, 1, 0, Times.SECOND);
    other.end(Call.COMMIT);
    assertNull(other.answered(Call.COMMIT, error(ErrorKind.UNKNOWN_TRANSACTION)));
    assertEquals(State.ABORTED, other.state());
    assertEquals(ErrorKind.TRANSACTION_ABORTED, other.error().kind());
  }

  @Test
  void anAbortWithoutACommitEndsWhateverItIsTold() {
    one.end(Call.ABORT);
    assertNull(one.answered(Call.ABORT, error(ErrorKind.FENCED)));
    assertEquals(State.ABORTED, one.state());
  }

  @Test
  void theFirstFailureCounts() {
    one.fail(error(ErrorKind.FENCED));
    one.fail(error(ErrorKind.INVALID_BATCH));
    assertEquals(ErrorKind.FENCED, one.error().kind());
    assertEquals(Call.ABORT, one.end(Call.COMMIT));
    OncelogException refused = assertThrows(OncelogException.class, one::checkOpen);
    assertEquals(ErrorKind.TRANSACTION_ABORTED, refused.kind());
  }
}
