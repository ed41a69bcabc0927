//! Lets the conformance kit drive this client: commands come as JSON lines on standard input,
//! answers go to standard output. conformance/DRIVER.md describes them.

mod administration;
mod settings;
mod told;
mod verbs;

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use oncelog::{Admin, Consumer, Error, ErrorKind, Membership};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use told::{Calls, Told};
use verbs::Producing;

/// Answer of a verb.
pub type Answer = Result<Value, Fault>;

/// An error, of the client's or not.
pub enum Fault {
    /// The client's own.
    Client(Error),
    /// The client has no such verb, field or setting.
    NotOffered(String),
    /// The waiting is over.
    Timeout,
    /// The caller gave up.
    Cancelled,
    /// All else.
    Driver(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

/// Open objects, by handle.
#[derive(Default)]
pub struct Driver {
    producers: HashMap<String, Producing>,
    consumers: HashMap<String, Consumer>,
    admins: HashMap<String, Admin>,
    told: HashMap<String, Calls>,
}

/// Lines that the client has logged.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(vec![]);

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        WARNINGS.lock().expect("no panic").push(record.args().to_string());
    }

    fn flush(&self) {}
}

#[tokio::main(worker_threads = 2)]
async fn main() -> std::io::Result<()> {
    log::set_logger(&Logger).expect("there is no other one");
    log::set_max_level(log::LevelFilter::Warn);
    let mut driver = Driver::default();
    let mut input = BufReader::with_capacity(1 << 20, tokio::io::stdin());
    let mut output = tokio::io::stdout();
    let mut line = String::new();
    while input.read_line(&mut line).await? > 0 {
        let command: Value = serde_json::from_str(&line).unwrap_or(Value::Null);
        let call = driver.carry_out(&command);
        let carried_out = match command["give_up_ms"].as_u64() {
            None => call.await,
            Some(ms) => {
                let limit = Duration::from_millis(ms);
                tokio::time::timeout(limit, call).await.unwrap_or(Err(Fault::Cancelled))
            }
        };
        let mut answer = match carried_out {
            Ok(answer) => json!({ "ok": answer }),
            Err(fault) => json!({ "error": error_object(&fault) }),
        };
        answer["id"] = command["id"].clone();
        output.write_all(format!("{answer}\n").as_bytes()).await?;
        output.flush().await?;
        if command["verb"] == "exit" {
            break;
        }
        line.clear();
    }
    Ok(())
}

pub fn error_object(fault: &Fault) -> Value {
    let plain = |reason: &str, retriable: bool, message: &str| json!({ "reason": reason, "retriable": retriable, "message": message });
    let error = match fault {
        Fault::Client(error) => error,
        Fault::NotOffered(message) => return plain("NOT_OFFERED", false, message),
        Fault::Timeout => return plain("REQUEST_TIMEOUT", true, "the command's time is over"),
        Fault::Cancelled => return plain("CANCELLED", false, "the caller gave up"),
        Fault::Driver(message) => return plain("DRIVER_FAULT", false, message),
    };
    let mut answer = plain(error.kind().reason(), error.is_retriable(), &error.to_string());
    answer["details"] = details(error);
    if let Some(outcome) = error.outcome() {
        answer["outcome"] = outcome.as_str().into();
    }
    answer
}

fn details(error: &Error) -> Value {
    let d = error.details();
    let names: &[(&str, Value)] = match error.kind() {
        ErrorKind::NotLeader => {
            &[("leader_id", json!(d.leader_id)), ("leader_address", json!(d.leader_address))]
        }
        ErrorKind::UnknownTopicOrPartition => {
            &[("topic", json!(d.topic)), ("partition", json!(d.partition))]
        }
        ErrorKind::InvalidRequest => &[("field", json!(d.field)), ("limit", json!(d.limit))],
        ErrorKind::TopicAlreadyExists => &[("topic", json!(d.topic))],
        ErrorKind::ProducerNameNotFound => &[("producer_name", json!(d.producer_name))],
        ErrorKind::NotAuthorized => &[
            ("principal", json!(d.principal)),
            ("operation", json!(d.operation)),
            ("kind", json!(d.kind)),
            ("name", json!(d.name)),
        ],
        ErrorKind::OffsetOutOfRange => &[
            ("topic", json!(d.topic)),
            ("partition", json!(d.partition)),
            ("offset", json!(d.offset)),
            ("log_start_offset", json!(d.log_start_offset)),
            ("high_watermark", json!(d.high_watermark)),
        ],
        ErrorKind::CorruptLog => &[
            ("topic", json!(d.topic)),
            ("partition", json!(d.partition)),
            ("offset", json!(d.offset)),
        ],
        ErrorKind::OffsetMismatch => &[("next_offset", json!(d.next_offset))],
        ErrorKind::Fenced => &[("current_epoch", json!(d.current_epoch))],
        ErrorKind::OutOfOrder => &[("last_sequence", json!(d.last_sequence))],
        _ => &[],
    };
    let batch = [
        ("topic", json!(d.topic)),
        ("partition", json!(d.partition)),
        ("producer_id", json!(d.producer_id)),
        ("epoch", json!(d.epoch)),
        ("sequence", json!(d.sequence)),
    ];
    let of_batch = if error.is(ErrorKind::Delivery) { &batch[..] } else { &[] };
    let all = names.iter().chain(of_batch);
    Value::Object(all.map(|(name, value)| ((*name).into(), value.clone())).collect())
}

impl Driver {
    async fn carry_out(&mut self, c: &Value) -> Answer {
        let handle = c["handle"].as_str().unwrap_or_default().to_owned();
        match c["verb"].as_str().unwrap_or_default() {
            "hello" => Ok(json!({
                "client": "oncelog-rust", "version": oncelog::VERSION, "protocol": 1,
                "features": [
                    "zstd", "lz4", "no_idempotence", "send_batch", "names", "resume_from",
                    "own_sequences", "expected_offset", "resolve", "read", "any_replica", "rack",
                    "offsets", "transactions", "members", "admin", "tls", "tokens",
                    "cancel", "warnings",
                ],
            })),
            "defaults" => Ok(settings::defaults()),
            "reset" => {
                self.reset().await;
                Ok(empty())
            }
            "exit" => Ok(empty()),
            "warnings" => Ok(json!({ "warnings": *WARNINGS.lock().expect("no panic") })),
            "told" => {
                let calls = self.told.get(&handle);
                Ok(json!({ "calls": calls.map(|calls| calls.lock().expect("no panic").clone()) }))
            }
            "open_producer" => {
                let producer = Producing::open(&c["config"])?;
                self.producers.insert(handle, producer);
                Ok(empty())
            }
            "open_consumer" => {
                let mut config = settings::consumer(&c["config"])?;
                if config.membership == Membership::Assigned {
                    let failing = c["failing"].as_str().unwrap_or_default().to_owned();
                    let told = Told { calls: Calls::default(), failing };
                    self.told.insert(handle.clone(), told.calls.clone());
                    config.listener = Some(told.into());
                }
                self.consumers.insert(handle, Consumer::new(config)?);
                Ok(empty())
            }
            "open_admin" => {
                let admin = Admin::new(settings::admin(&c["config"])?)?;
                self.admins.insert(handle, admin);
                Ok(empty())
            }
            verb => {
                if let Some(producer) = self.producers.get_mut(&handle) {
                    let consumer = self.consumers.get(c["consumer"].as_str().unwrap_or_default());
                    producer.carry_out(verb, c, consumer).await
                } else if let Some(consumer) = self.consumers.get(&handle) {
                    verbs::read(consumer, verb, c).await
                } else if let Some(admin) = self.admins.get(&handle) {
                    verbs::manage(admin, verb, c).await
                } else {
                    Err(Fault::Driver(format!("no handle {handle:?} for {verb:?}")))
                }
            }
        }
    }

    async fn reset(&mut self) {
        for (_, producing) in self.producers.drain() {
            // Nobody asks for the outcome of its records.
            let _ = producing.producer.close_within(Duration::ZERO).await;
        }
        self.consumers.clear();
        self.admins.clear();
        WARNINGS.lock().expect("no panic").clear();
    }
}

pub fn empty() -> Value {
    Value::Object(Map::new())
}
