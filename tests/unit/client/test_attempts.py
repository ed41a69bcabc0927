"""The error of a call that is out of time: the most telling one of its attempts, and the doubt."""

from __future__ import annotations

import grpc

from oncelog import errors
from oncelog._engine.net.attempts import Attempts, may_have_been_done, tells
from oncelog._engine.produce.outcomes import Obstacles
from oncelog.wire.status import from_status, to_status


def of_node(error: errors.OncelogError) -> errors.OncelogError:
    """The same error as it arrives from a node."""
    return from_status(*to_status(error))


def attempts(*failed: errors.OncelogError) -> Attempts:
    made = Attempts()
    for error in failed:
        made.failed(error)
    return made


def timeout() -> errors.RequestTimeoutError:
    return errors.RequestTimeoutError("n1: Deadline Exceeded")


def test_a_timeout_hides_no_refusal_and_leaves_it_in_doubt() -> None:
    refusal = of_node(errors.NotLeaderError("not here", leader_id=2, leader_address="n2"))
    told = attempts(refusal, timeout()).error()
    assert isinstance(told, errors.NotLeaderError)
    assert (told.leader_id, told.leader_address) == (2, "n2")
    assert told.message == "not here; the last attempt: n1: Deadline Exceeded"
    assert told.outcome == "unknown"
    assert refusal.message == "not here", "the attempt's own error stays as it is"


def test_the_doubt_of_an_earlier_attempt_stays() -> None:
    told = attempts(timeout(), of_node(errors.NotReadyError("wait"))).error()
    assert isinstance(told, errors.NotReadyError)
    assert (told.message, told.outcome) == ("wait", "unknown")


def test_refusals_alone_leave_no_doubt() -> None:
    told = attempts(of_node(errors.OtherClusterError("of 2")), errors.NotReadyError("x")).error()
    assert isinstance(told, errors.NotReadyError), "the last refusal"
    assert told.outcome is None


def test_a_final_answer_speaks_for_the_last_attempt_alone() -> None:
    gone = of_node(errors.UnknownTopicOrPartitionError("no such topic"))
    assert attempts(of_node(errors.NotReadyError("wait"))).final(gone) is gone
    told = attempts(timeout()).final(gone)
    assert isinstance(told, errors.UnknownTopicOrPartitionError)
    assert told.outcome == "unknown", "an earlier attempt may have deleted it"
    exists = of_node(errors.TopicAlreadyExistsError("there is one"))
    told = attempts(timeout()).final(exists)
    assert isinstance(told, errors.TopicAlreadyExistsError)
    doubt = "an earlier attempt had no answer and may have taken effect"
    assert told.message == f"there is one; {doubt}"
    assert (exists.message, gone.message) == ("there is one", "no such topic")


def test_a_node_without_a_majority_tells_more_than_a_lost_connection() -> None:
    majority = of_node(errors.BrokerUnavailableError("no majority"))
    assert tells(majority)
    lost = errors.BrokerUnavailableError("n1: failed to connect: refused")
    assert attempts(majority, lost, timeout()).error().message.startswith("no majority; ")
    told = attempts(lost, timeout()).error()
    assert isinstance(told, errors.BrokerUnavailableError) and not tells(told)
    assert told.outcome == "unknown"
    assert attempts(lost, lost).error().message == lost.message


def test_a_purpose_that_took_too_long_names_itself_first() -> None:
    assert isinstance(Attempts().late("no metadata"), errors.RequestTimeoutError)
    late = attempts(timeout()).late("no metadata")
    assert isinstance(late, errors.RequestTimeoutError)
    assert late.message == "no metadata: n1: Deadline Exceeded"
    assert late.outcome == "unknown"
    refused = from_status(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses")
    late = attempts(refused).late("no metadata")
    assert late.outcome is None and not may_have_been_done(late), "it was never sent"
    assert attempts(late).error().outcome is None
    other = of_node(errors.BrokerUnavailableError("failed to connect to n2"))
    assert attempts(other).error().outcome == "unknown", "the node says this of another connection"
    other = from_status(grpc.StatusCode.UNAVAILABLE, "a proxy failed to connect")
    assert may_have_been_done(other), "there was a connection to the proxy"
    late = attempts(of_node(errors.StorageFullError("full")), timeout()).late("no metadata")
    assert isinstance(late, errors.StorageFullError)
    assert late.message == "no metadata: full; the last attempt: n1: Deadline Exceeded"


def test_a_record_is_told_the_refusal_and_later_obstacles() -> None:
    obstacles = Obstacles()
    obstacles.met("n1: no answer yet")
    assert str(obstacles) == "n1: no answer yet"
    obstacles.met("n1: STORAGE_FULL", told=True)
    assert str(obstacles) == "n1: STORAGE_FULL"
    obstacles.met("n1: no connection")
    assert str(obstacles) == "n1: STORAGE_FULL; n1: no connection"
    obstacles.clear()
    assert not str(obstacles)
