//! Meaning of answers for a transaction, and for its caller.

use super::*;

fn begun() -> Staging {
    Staging::new(7, 1, 0, Duration::from_secs(60))
}

fn error(kind: ErrorKind) -> Error {
    Error::new(kind, "it says why")
}

/// Makes the calls that the answers ask for, and returns how it ended.
fn ended(first: EndCall, answers: &[(Option<ErrorKind>, Option<EndCall>)]) -> Staging {
    let staging = begun();
    let mut call = Some(staging.end(first));
    for (answer, next) in answers {
        let answer = answer.map(error);
        call = staging.answered(call.expect("another call is made"), answer.as_ref());
        assert_eq!(call, *next);
    }
    staging
}

#[test]
fn a_commit_is_repeated_until_it_is_answered() {
    let lost = (Some(ErrorKind::Unavailable), Some(EndCall::Commit));
    let staging = ended(EndCall::Commit, &[lost, lost, (None, None)]);
    assert_eq!(staging.state(), TransactionState::Committed);
}

#[test]
fn a_refusal_after_a_lost_answer_is_asked_about() {
    let staging = ended(
        EndCall::Commit,
        &[
            (Some(ErrorKind::Unavailable), Some(EndCall::Commit)),
            (Some(ErrorKind::CommitIncomplete), Some(EndCall::Abort)),
            (Some(ErrorKind::TransactionCommitted), Some(EndCall::Commit)),
            (None, None),
        ],
    );
    assert_eq!(staging.state(), TransactionState::Committed);
}

#[test]
fn what_was_refused_is_aborted_and_says_why() {
    let refused = (Some(ErrorKind::CommitIncomplete), Some(EndCall::Abort));
    let staging = ended(EndCall::Commit, &[refused, (None, None)]);
    assert_eq!(staging.state(), TransactionState::Aborted);
    let told = staging.error();
    assert_eq!(told.kind(), ErrorKind::CommitIncomplete);
    assert_eq!(told.outcome(), Some(Outcome::NotStored));
}

#[test]
fn nobody_knows_it() {
    let unknown = (Some(ErrorKind::UnknownTransaction), None);
    let staging = ended(EndCall::Commit, &[unknown]);
    assert_eq!(staging.state(), TransactionState::Aborted, "no call had a chance");
    assert_eq!(staging.error().kind(), ErrorKind::TransactionAborted);
    let lost = (Some(ErrorKind::Unavailable), Some(EndCall::Commit));
    let staging = ended(EndCall::Commit, &[lost, unknown]);
    assert_eq!(staging.state(), TransactionState::Unknown);
    assert_eq!(staging.error().outcome(), Some(Outcome::Unknown));
    let staging = ended(EndCall::Abort, &[unknown]);
    assert_eq!(staging.state(), TransactionState::Aborted);
}

#[test]
fn what_has_failed_is_never_committed() {
    let staging = begun();
    staging.fail(&Error::new(ErrorKind::InvalidBatch, "first"));
    staging.fail(&Error::new(ErrorKind::InvalidBatch, "second"));
    let told = staging.check_open().unwrap_err();
    assert_eq!(told.kind(), ErrorKind::TransactionAborted);
    assert!(told.message().contains("first"));
    assert_eq!(staging.end(EndCall::Commit), EndCall::Abort);
    let fenced = begun();
    fenced.fail(&error(ErrorKind::Fenced));
    fenced.answered(fenced.end(EndCall::Abort), None);
    assert_eq!(fenced.error().kind(), ErrorKind::Fenced, "what ends the producer comes as itself");
}

#[test]
fn a_commit_names_all_that_is_staged() {
    let staging = begun();
    let tp = TopicPartition::new("t", 3);
    let run = staging.staged(&tp, 2, 6);
    staging.staged(&tp, 3, 4); // answers come in any order
    staging.staged_offsets("g", 5, 2);
    let request = staging.commit_request(Duration::from_secs(3), None);
    assert_eq!((request.runs[0].record_count, request.runs[0].last_sequence), (5, 6));
    assert_eq!((request.offsets[0].offset_count, request.offsets[0].last_number), (2, 5));
    assert_eq!(run.base_offset(), -1);
    let place =
        pb::PublishedRun { topic: "t".into(), partition: 3, base_offset: 40, record_count: 5 };
    staging.published(&[place]);
    assert_eq!(run.base_offset(), 40);
    assert_eq!(staging.committed().unwrap().runs[&tp].base_offset, 40);
}
