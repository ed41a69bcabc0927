//! Meaning of the statuses, verdicts and reasons of nodes.

use std::collections::HashMap;
use std::time::Duration;

use prost::Message;
use tonic::{Code, Status};

use crate::connection::NO_CONNECTION;
use crate::errors::{Error, ErrorKind};
use crate::pb::{self, Verdict};
use crate::types::TopicPartition;

/// google.rpc.Status, as far as it is of interest.
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<RpcDetail>,
}

/// google.protobuf.Any.
#[derive(Clone, PartialEq, Message)]
struct RpcDetail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// google.rpc.ErrorInfo.
#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
    #[prost(map = "string, string", tag = "3")]
    metadata: HashMap<String, String>,
}

/// Meaning of a status without our ErrorInfo: it comes from gRPC itself, or from something in
/// between.
fn plain_kind(code: Code) -> ErrorKind {
    match code {
        Code::Unavailable | Code::Cancelled => ErrorKind::Unavailable,
        Code::DeadlineExceeded => ErrorKind::RequestTimeout,
        // A message beyond a limit, most often: the same again would end the same way.
        Code::ResourceExhausted | Code::InvalidArgument | Code::OutOfRange => {
            ErrorKind::InvalidRequest
        }
        Code::Unimplemented => ErrorKind::NotSupported,
        Code::DataLoss => ErrorKind::CorruptLog,
        Code::Unauthenticated => ErrorKind::Unauthenticated,
        Code::PermissionDenied => ErrorKind::NotAuthorized,
        _ => ErrorKind::Internal,
    }
}

/// The error that a failed call to an address stands for.
pub(crate) fn from_status(address: &str, status: &Status) -> Error {
    if let Ok(rpc) = RpcStatus::decode(status.details()) {
        for detail in rpc.details {
            if detail.type_url == "type.googleapis.com/google.rpc.ErrorInfo"
                && let Ok(info) = ErrorInfo::decode(detail.value.as_slice())
                && info.domain == "oncelog"
            {
                return from_info(&info, status.message()).told();
            }
        }
    }
    let text = match status.message() {
        "" => status.code().description(),
        message => message,
    };
    let error = Error::new(plain_kind(status.code()), format!("{address}: {text}"));
    if text.starts_with(NO_CONNECTION) { error.unsent() } else { error }
}

fn from_info(info: &ErrorInfo, message: &str) -> Error {
    let word = |name: &str| info.metadata.get(name).cloned().unwrap_or_default();
    let Some(kind) = ErrorKind::of_reason(&info.reason) else {
        // A newer server: its own word says whether to retry.
        let retriable = word("retriable") == "true";
        let kind = if retriable { ErrorKind::Unavailable } else { ErrorKind::Internal };
        return Error::new(kind, format!("{}: {message}", info.reason));
    };
    let number = |name: &str| word(name).parse::<i64>().ok();
    let small = |name: &str| word(name).parse::<i32>().ok();
    Error::new(kind, message).with(|d| {
        d.topic = word("topic");
        d.producer_name = word("producer_name");
        d.partition = small("partition").unwrap_or(-1);
        d.offset = number("offset").unwrap_or(-1);
        d.log_start_offset = number("log_start_offset").unwrap_or(-1);
        d.high_watermark = number("high_watermark").unwrap_or(-1);
        d.next_offset = number("next_offset").unwrap_or(-1);
        d.last_sequence = number("last_sequence").unwrap_or(-1);
        d.current_epoch = small("current_epoch").unwrap_or(-1);
        d.leader_id = small("leader_id").unwrap_or(0);
        d.leader_address = word("leader_address");
        let wait = small("retry_after_ms").unwrap_or(0).max(0);
        d.retry_after = Duration::from_millis(wait as u64);
        d.field = word("field");
        d.limit = word("limit");
        d.principal = word("principal");
        d.operation = word("operation");
        d.kind = word("kind");
        d.name = word("name");
    })
}

/// Whether it is a success: a verdict's number gives its class.
pub(crate) fn is_stored(verdict: i32) -> bool {
    Verdict::try_from(verdict).is_ok() && (1..10).contains(&verdict)
}

pub(crate) fn is_retriable(verdict: i32) -> bool {
    Verdict::try_from(verdict).is_ok() && verdict >= 30
}

/// The kind of a final verdict, by its name; `None`: this client does not know it.
pub(crate) fn verdict_kind(verdict: i32) -> Option<ErrorKind> {
    ErrorKind::of_reason(&verdict_name(verdict))
}

/// The verdict, and the node's message.
pub(crate) fn answer_text(result: &pb::BatchResult) -> String {
    let name = verdict_name(result.verdict);
    if result.message.is_empty() { name } else { format!("{name}: {}", result.message) }
}

fn verdict_name(verdict: i32) -> String {
    match Verdict::try_from(verdict) {
        Ok(known) => known.as_str_name().trim_start_matches("VERDICT_").into(),
        Err(_) => format!("verdict {verdict}"),
    }
}

/// A word that is not known counts as an invalid batch: it must not be repeated blindly.
pub(crate) fn from_verdict(result: &pb::BatchResult, tp: &TopicPartition) -> Error {
    let kind = verdict_kind(result.verdict).unwrap_or(ErrorKind::InvalidBatch);
    let mut text = result.message.clone();
    if text.is_empty() {
        text = verdict_name(result.verdict);
    }
    match kind {
        ErrorKind::Fenced => {
            text += &format!(
                " (current epoch {}): another producer has taken over",
                result.current_epoch
            );
        }
        ErrorKind::OutOfOrder => {
            text += &format!(" (last stored sequence {})", result.last_sequence);
        }
        ErrorKind::OffsetMismatch => text += &format!(" (next offset {})", result.next_offset),
        _ => {}
    }
    Error::new(kind, format!("{tp}: {text}")).with(|d| {
        d.topic = tp.topic.to_string();
        d.partition = tp.partition;
        d.current_epoch = result.current_epoch;
        d.last_sequence = result.last_sequence;
        d.next_offset = result.next_offset;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_with(reason: &str, metadata: &[(&str, &str)]) -> Status {
        let pairs = metadata.iter().map(|(k, v)| (k.to_string(), v.to_string()));
        let info = ErrorInfo {
            reason: reason.into(),
            domain: "oncelog".into(),
            metadata: pairs.collect(),
        };
        let detail = RpcDetail {
            type_url: "type.googleapis.com/google.rpc.ErrorInfo".into(),
            value: info.encode_to_vec(),
        };
        let details = RpcStatus { details: vec![detail] }.encode_to_vec();
        Status::with_details(Code::Unknown, "the message", details.into())
    }

    #[test]
    fn a_reason_decides_and_not_the_code() {
        let leader = [("leader_id", "3"), ("leader_address", "a:1")];
        let error = from_status("b:2", &status_with("NOT_LEADER", &leader));
        assert_eq!(error.kind(), ErrorKind::NotLeader);
        assert_eq!(error.details().leader_address, "a:1");
        assert_eq!(error.details().leader_id, 3);
    }

    #[test]
    fn a_word_of_a_newer_node_says_itself_whether_to_retry() {
        let error = from_status("b:2", &status_with("MOON_PHASE", &[("retriable", "true")]));
        assert!(error.is_retriable());
        let error = from_status("b:2", &status_with("MOON_PHASE", &[]));
        assert_eq!(error.kind(), ErrorKind::Internal);
        // A client's own words are none that a node may say.
        let error = from_status("b:2", &status_with("CLIENT_CLOSED", &[]));
        assert_eq!(error.kind(), ErrorKind::Internal);
    }

    #[test]
    fn what_is_too_large_is_never_repeated() {
        let error = from_status("b:2", &Status::resource_exhausted("too large"));
        assert!(!error.is_retriable());
        assert!(from_status("b:2", &Status::unavailable("")).is_retriable());
    }
}
