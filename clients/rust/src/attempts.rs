//! The failed attempts of a call that is repeated until its time is over: which of their errors the
//! caller is told. The last attempt is cut short by the deadline, and its timeout must not hide a
//! node's refusal.

use std::fmt;

use crate::errors::{Error, ErrorKind, Outcome};

#[derive(Debug, Default)]
pub(crate) struct Attempts {
    last: Option<Error>,
    /// The last one of those that tell the most.
    telling: Option<Error>,
    /// A node may have taken one of them.
    in_doubt: bool,
}

impl Attempts {
    pub(crate) fn failed(&mut self, error: &Error) {
        self.in_doubt |= may_have_been_done(error);
        if self.telling.as_ref().is_none_or(|known| rank(error) >= rank(known)) {
            self.telling = Some(error.clone());
        }
        self.last = Some(error.clone());
    }

    /// Whether a node may have taken one of them.
    pub(crate) fn in_doubt(&self) -> bool {
        self.in_doubt
    }

    pub(crate) fn telling(&self) -> Option<&Error> {
        self.telling.as_ref()
    }

    /// The most telling error. Its outcome is unknown if an attempt had no answer.
    pub(crate) fn error(&self) -> Error {
        self.with_doubt(self.telling.clone().expect("an attempt has failed"))
    }

    /// The same behind this text: a timeout, if no node has said anything.
    pub(crate) fn late(&self, text: &str) -> Error {
        let Some(telling) = &self.telling else {
            return Error::new(ErrorKind::RequestTimeout, text);
        };
        let error = self.error();
        let message = format!("{text}: {error}");
        if tells(telling) {
            return error.with_message(message);
        }
        let late = Error::new(ErrorKind::RequestTimeout, message).in_doubt(self.in_doubt);
        if telling.is_unsent() { late.unsent() } else { late }
    }

    /// An answer that ends the call, with the doubt of an attempt that had none: that one may have
    /// taken effect, and the answer speaks for the last attempt alone.
    pub(crate) fn final_answer(&self, error: Error) -> Error {
        let answered = error.is_told() || error.kind() == ErrorKind::UnknownTopicOrPartition;
        if !self.in_doubt || !answered {
            return error;
        }
        let message =
            format!("{error}; an earlier attempt had no answer and may have taken effect");
        error.with_message(message).in_doubt(true)
    }

    /// This error, with the last attempt's text if that tells less.
    pub(crate) fn with_doubt(&self, error: Error) -> Error {
        let error = error.in_doubt(self.in_doubt);
        match &self.last {
            Some(last) if !tells(last) && last.message() != error.message() => {
                let message = format!("{error}; the last attempt: {last}");
                error.with_message(message)
            }
            _ => error,
        }
    }
}

/// Whether a node may have executed a call that ended so.
pub(crate) fn may_have_been_done(error: &Error) -> bool {
    let lost = matches!(error.kind(), ErrorKind::RequestTimeout | ErrorKind::Unavailable);
    lost && !error.is_unsent() || error.outcome() == Some(Outcome::Unknown)
}

/// Whether a node has said this: its refusal, or its view of the cluster.
pub(crate) fn tells(error: &Error) -> bool {
    rank(error) > 1
}

fn rank(error: &Error) -> u8 {
    match error.kind() {
        _ if error.is_told() => 2,
        ErrorKind::RequestTimeout => 0,
        ErrorKind::Unavailable => 1, // more than a deadline of our own
        _ => 2,
    }
}

/// Reasons why a partition's batches were not stored since the last success. A node's refusal is
/// not hidden by later failures: a lost connection, no answer.
#[derive(Debug, Default)]
pub(crate) struct Obstacles {
    refusal: String,
    last: String,
}

impl Obstacles {
    /// `told`: by a node.
    pub(crate) fn met(&mut self, text: String, told: bool) {
        if told {
            self.refusal.clone_from(&text);
        }
        self.last = text;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.last.is_empty()
    }
}

impl fmt::Display for Obstacles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.refusal.is_empty() || self.refusal == self.last {
            return f.write_str(&self.last);
        }
        write!(f, "{}; {}", self.refusal, self.last)
    }
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;
    use crate::connection::NO_CONNECTION;
    use crate::status::from_status;

    fn failed(errors: &[&Error]) -> Attempts {
        let mut attempts = Attempts::default();
        errors.iter().for_each(|error| attempts.failed(error));
        attempts
    }

    fn timeout() -> Error {
        Error::new(ErrorKind::RequestTimeout, "n1: too late")
    }

    #[test]
    fn a_timeout_hides_no_refusal() {
        let refusal = Error::new(ErrorKind::NotLeader, "not here").told().with(|d| d.leader_id = 2);
        let told = failed(&[&refusal, &timeout()]).error();
        assert_eq!((told.kind(), told.details().leader_id), (ErrorKind::NotLeader, 2));
        assert_eq!(told.message(), "not here; the last attempt: n1: too late");
        assert_eq!(told.outcome(), Some(Outcome::Unknown));

        let wait = Error::new(ErrorKind::NotReady, "wait").told();
        let earlier = failed(&[&timeout(), &wait]).error();
        assert_eq!((earlier.kind(), earlier.message()), (ErrorKind::NotReady, "wait"));
        assert_eq!(earlier.outcome(), Some(Outcome::Unknown), "the first attempt is in doubt");

        let sure = failed(&[&refusal, &wait]).error();
        assert_eq!((sure.kind(), sure.outcome()), (ErrorKind::NotReady, None));
    }

    #[test]
    fn a_final_answer_speaks_for_the_last_attempt_alone() {
        let gone = Error::new(ErrorKind::UnknownTopicOrPartition, "no such topic").told();
        let wait = Error::new(ErrorKind::NotReady, "wait").told();
        let sure = failed(&[&wait]).final_answer(gone.clone());
        assert_eq!((sure.message(), sure.outcome()), ("no such topic", None));
        let told = failed(&[&timeout()]).final_answer(gone);
        assert_eq!(
            told.outcome(),
            Some(Outcome::Unknown),
            "an earlier attempt may have deleted it"
        );

        let exists = Error::new(ErrorKind::TopicAlreadyExists, "there is one").told();
        let told = failed(&[&timeout()]).final_answer(exists);
        let text = "there is one; an earlier attempt had no answer and may have taken effect";
        assert_eq!((told.kind(), told.message()), (ErrorKind::TopicAlreadyExists, text));
        let own = failed(&[&timeout()]).final_answer(Error::closed("client"));
        assert_eq!(own.message(), "the client is closed");
    }

    #[test]
    fn a_lost_connection_tells_more_than_a_timeout() {
        let lost = Error::new(ErrorKind::Unavailable, "n1: refused");
        let silent = failed(&[&lost, &timeout()]);
        assert_eq!(silent.error().kind(), ErrorKind::Unavailable);
        assert_eq!(silent.late("no metadata").kind(), ErrorKind::RequestTimeout);
        let majority = Error::new(ErrorKind::Unavailable, "no majority").told();
        let late = failed(&[&majority, &lost, &timeout()]).late("no metadata");
        assert_eq!(late.kind(), ErrorKind::Unavailable);
        let text = "no metadata: no majority; the last attempt: n1: too late";
        assert_eq!(late.message(), text);
        assert_eq!(Attempts::default().late("no").kind(), ErrorKind::RequestTimeout);
    }

    #[test]
    fn a_call_that_was_not_sent_leaves_no_doubt() {
        let refused =
            from_status("n1:1", &Status::unavailable(format!("{NO_CONNECTION}: refused")));
        assert!(!may_have_been_done(&refused));
        assert!(!may_have_been_done(&failed(&[&refused]).late("no metadata")));
        let proxy = from_status("n1:1", &Status::unavailable(format!("a proxy {NO_CONNECTION}")));
        assert!(may_have_been_done(&proxy), "a text that tells of another connection");
    }

    #[test]
    fn a_record_is_told_the_refusal_and_what_came_after_it() {
        let mut obstacles = Obstacles::default();
        obstacles.met("n1: no answer yet".into(), false);
        obstacles.met("n1: STORAGE_FULL".into(), true);
        assert_eq!(obstacles.to_string(), "n1: STORAGE_FULL");
        obstacles.met("n1: gone".into(), false);
        assert_eq!(obstacles.to_string(), "n1: STORAGE_FULL; n1: gone");
    }
}
