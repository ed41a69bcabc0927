//! A window driven by hand: no sender, no clock, no network.

use tokio::sync::Notify;

use super::*;
use crate::accumulator::Addition;
use crate::config::ProducerConfig;
use crate::delivery::Delivery;
use crate::types::Message;

struct Bench {
    window: Window,
    now: Instant,
    current: Arc<Identity>,
    next_id: u64,
}

/// An attempt that was sent.
struct Sent {
    serial: u64,
    id: u64,
    message: pb::Batch,
}

impl Sent {
    fn header(&self) -> &pb::BatchHeader {
        self.message.header.as_ref().unwrap()
    }
}

impl Bench {
    fn new() -> Self {
        let mut config = ProducerConfig::new("a:1");
        config.linger = Duration::ZERO;
        config.client.retry_backoff = Duration::from_millis(1);
        config.client.retry_backoff_max = Duration::from_millis(1);
        let common = Arc::new(Common::new(config, Arc::new(Notify::new())));
        let mut bench = Self {
            window: Window::new(TopicPartition::new("t", 0), common),
            now: Instant::now(),
            current: Arc::default(),
            next_id: 0,
        };
        bench.lease(1);
        bench
    }

    fn lease(&mut self, producer_id: i64) {
        self.current = Arc::new(Identity {
            producer_id,
            serial: self.current.serial + 1,
            lease_token: "token".into(),
            ..Default::default()
        });
        if self.window.needs_identity(self.now, Some(&self.current)) {
            self.window.adopt(self.current.clone(), -1, 7);
        }
    }

    async fn add(
        &self,
        sequences: Option<&[i64]>,
        expected: Option<i64>,
    ) -> Result<Delivery, Error> {
        let addition = Addition {
            choose: None,
            topic: "t",
            partition: 0,
            sticky: false,
            messages: &[Message::new("t", "v")],
            sequences,
            expected_offset: expected,
            whole: true,
            max_batch_bytes: 1 << 20,
        };
        self.window.common.accumulator.append(&addition).await
    }

    /// Queues a batch of one record.
    async fn put(&self) -> Delivery {
        self.add(None, None).await.unwrap()
    }

    /// The next batch goes on its way.
    fn send(&mut self) -> Option<Sent> {
        let at = self.window.next(self.now, Some(&self.current)).ok()?;
        self.next_id += 1;
        let message = self.window.sent(at, self.next_id, self.now);
        Some(Sent { serial: self.window.serial(at), id: self.next_id, message })
    }

    fn answer(&mut self, sent: &Sent, verdict: Verdict) -> Reaction {
        self.result(sent, pb::BatchResult { verdict: verdict.into(), ..Default::default() })
    }

    fn result(&mut self, sent: &Sent, result: pb::BatchResult) -> Reaction {
        self.window.on_result(sent.serial, sent.id, &result, self.now)
    }

    fn later(&mut self) {
        self.now += Duration::from_secs(1);
    }
}

/// The kind and outcome of a delivery that has failed.
fn failed(delivery: &Delivery) -> (ErrorKind, Outcome) {
    let error = delivery.outcome().expect("it has an outcome").unwrap_err();
    (error.kind(), error.outcome().unwrap())
}

fn stored(delivery: &Delivery) -> bool {
    delivery.outcome().is_some_and(|outcome| outcome.is_ok())
}

#[tokio::test]
async fn a_retry_is_byte_identical_but_for_its_id() {
    let mut b = Bench::new();
    let (_one, _two) = (b.put().await, b.put().await);
    let first = b.send().unwrap();
    let second = b.send().unwrap();
    assert_eq!((first.header().base_sequence, second.header().base_sequence), (0, 1));
    assert_eq!(first.message.lease_token, "token");
    assert!(second.message.lease_token.is_empty());
    b.answer(&first, Verdict::NotReady);
    assert!(b.send().is_none(), "sent again without a pause");
    b.later();
    let again = b.send().unwrap();
    assert_ne!(again.id, first.id);
    assert_eq!(pb::Batch { id: first.id, ..again.message }, first.message);
    assert_eq!(b.send().unwrap().header().base_sequence, 1, "what follows goes again, too");
}

#[tokio::test]
async fn five_are_in_flight() {
    let mut b = Bench::new();
    for _ in 0..7 {
        b.put().await;
    }
    let head = b.send().unwrap();
    for _ in 1..5 {
        b.send().unwrap();
    }
    assert!(b.send().is_none(), "six are in flight");
    b.answer(&head, Verdict::Appended);
    assert!(b.send().is_some(), "the room was not used");
}

#[tokio::test]
async fn out_of_order_behind_a_retried_head_is_no_error() {
    let mut b = Bench::new();
    let (one, two) = (b.put().await, b.put().await);
    let (first, second) = (b.send().unwrap(), b.send().unwrap());
    b.answer(&first, Verdict::NotReady);
    assert!(matches!(b.answer(&second, Verdict::OutOfOrder), Reaction::Nothing));
    b.later();
    let (first, second) = (b.send().unwrap(), b.send().unwrap());
    b.answer(&first, Verdict::Appended);
    let reaction = b.answer(&second, Verdict::OutOfOrder);
    assert!(matches!(reaction, Reaction::Nothing), "the head was not acknowledged then");
    let again = b.send().expect("its turn has come");
    assert_eq!(again.serial, second.serial);
    let reaction = b.answer(&again, Verdict::OutOfOrder);
    assert!(matches!(reaction, Reaction::Fatal(e) if e.kind() == ErrorKind::OutOfOrder));
    assert!(stored(&one));
    assert!(two.outcome().is_none(), "the sender fails it, with all others");
}

#[tokio::test]
async fn a_success_is_true_whichever_attempt_it_answers() {
    let mut b = Bench::new();
    let delivery = b.put().await;
    let first = b.send().unwrap();
    b.window.on_connection_lost(b.now);
    b.later();
    b.send().unwrap();
    b.answer(&first, Verdict::InvalidBatch);
    assert!(delivery.outcome().is_none(), "a refusal of an attempt that is not the latest counts");
    b.answer(&first, Verdict::Appended);
    assert!(stored(&delivery) && b.window.is_idle());
}

#[tokio::test]
async fn what_follows_a_refused_batch_gets_a_new_id() {
    let mut b = Bench::new();
    let (one, two) = (b.put().await, b.put().await);
    let first = b.send().unwrap();
    b.send().unwrap();
    b.answer(&first, Verdict::InvalidBatch);
    assert_eq!(failed(&one), (ErrorKind::InvalidBatch, Outcome::NotStored));
    assert!(b.window.needs_identity(b.now, Some(&b.current)), "numbered anew under the same id");
    b.lease(2);
    let sent = b.send().unwrap();
    assert_eq!((sent.header().producer_id, sent.header().base_sequence), (2, 0));
    b.answer(&sent, Verdict::Appended);
    assert_eq!(two.outcome().unwrap().unwrap().producer_id, 2);
}

#[tokio::test]
async fn a_refused_last_batch_leaves_its_sequences() {
    let mut b = Bench::new();
    b.put().await;
    let sent = b.send().unwrap();
    b.answer(&sent, Verdict::InvalidBatch);
    b.put().await;
    let sent = b.send().unwrap();
    assert_eq!((sent.header().producer_id, sent.header().base_sequence), (1, 0));
}

#[tokio::test]
async fn a_refusal_in_doubt_is_unknown_and_so_is_what_follows() {
    let mut b = Bench::new();
    let (one, two) = (b.put().await, b.put().await);
    let first = b.send().unwrap();
    b.send().unwrap();
    b.answer(&first, Verdict::Timeout);
    b.later();
    let first = b.send().unwrap();
    b.send().unwrap();
    b.answer(&first, Verdict::InvalidBatch);
    assert_eq!(failed(&one).1, Outcome::Unknown);
    assert_eq!(failed(&two).1, Outcome::Unknown);
    assert!(b.window.needs_identity(b.now, Some(&b.current)), "the id goes on");
}

#[tokio::test]
async fn an_offset_mismatch_that_can_only_get_worse_is_certain() {
    let mut b = Bench::new();
    let delivery = b.add(None, Some(3)).await.unwrap();
    let sent = b.send().unwrap();
    b.answer(&sent, Verdict::Timeout);
    b.later();
    let sent = b.send().unwrap();
    let verdict = Verdict::OffsetMismatch.into();
    b.result(&sent, pb::BatchResult { verdict, next_offset: 4, ..Default::default() });
    assert_eq!(failed(&delivery), (ErrorKind::OffsetMismatch, Outcome::NotStored));
}

#[tokio::test]
async fn an_expired_id_is_replaced_without_a_loss() {
    let mut b = Bench::new();
    b.put().await;
    let sent = b.send().unwrap();
    b.answer(&sent, Verdict::ProducerExpired);
    b.lease(2);
    assert_eq!(b.send().unwrap().header().producer_id, 2);
}

#[tokio::test]
async fn a_new_lease_waits_until_the_window_is_empty() {
    let mut b = Bench::new();
    b.put().await;
    let sent = b.send().unwrap();
    b.put().await;
    b.lease(2);
    assert!(b.send().is_none(), "something new went into the window");
    b.answer(&sent, Verdict::Appended);
    b.lease(3);
    let sent = b.send().unwrap();
    assert_eq!((sent.header().producer_id, sent.header().base_sequence), (3, 0));
}

#[tokio::test]
async fn a_head_out_of_time_holds_the_chain() {
    let mut b = Bench::new();
    let (one, two) = (b.put().await, b.put().await);
    let first = b.send().unwrap();
    b.send().unwrap();
    let limit = b.window.common.config.delivery_timeout + Duration::from_secs(1);
    b.window.batches[1].deadline += limit;
    b.now += limit;
    b.window.expire(b.now);
    assert_eq!(failed(&one), (ErrorKind::DeliveryTimeout, Outcome::Unknown));
    b.window.on_leader_changed(b.now);
    let again = b.send().unwrap();
    assert_eq!(again.serial, first.serial, "the head is sent on");
    let second = b.send().unwrap();
    b.answer(&again, Verdict::Appended);
    b.answer(&second, Verdict::Appended);
    assert!(stored(&two));
}

#[tokio::test]
async fn a_gap_in_the_applications_sequences_stops_the_producer() {
    let mut b = Bench::new();
    b.add(Some(&[10]), None).await.unwrap();
    let sent = b.send().unwrap();
    assert_eq!((sent.header().base_sequence, sent.header().prev_sequence), (10, Some(-1)));
    let reaction = b.answer(&sent, Verdict::InvalidBatch);
    assert!(matches!(reaction, Reaction::Fatal(e) if e.kind() == ErrorKind::ProducerFailed));
    let Err(error) = b.add(Some(&[11]), None).await else { panic!("what follows is taken") };
    assert_eq!(error.kind(), ErrorKind::ProducerFailed);
}

#[tokio::test]
async fn a_topic_made_anew() {
    let mut b = Bench::new();
    let (one, two) = (b.put().await, b.put().await);
    let first = b.send().unwrap();
    b.answer(&first, Verdict::Timeout);
    b.later();
    b.send().unwrap();
    let second = b.send().unwrap();
    let reaction = b.answer(&second, Verdict::UnknownProducer);
    assert!(matches!(reaction, Reaction::FatalUnlessRecreated(_)));
    b.window.on_topic_created_anew();
    assert_eq!(failed(&one).1, Outcome::Unknown);
    b.lease(2);
    let sent = b.send().unwrap();
    assert_eq!(sent.header().producer_id, 2);
    b.answer(&sent, Verdict::Appended);
    assert!(stored(&two));
}

#[tokio::test]
async fn a_word_of_a_later_version_is_not_repeated() {
    let mut b = Bench::new();
    let delivery = b.put().await;
    let sent = b.send().unwrap();
    b.result(&sent, pb::BatchResult { verdict: 99, ..Default::default() });
    assert_eq!(failed(&delivery), (ErrorKind::InvalidBatch, Outcome::Unknown));
}

#[tokio::test]
async fn sequences_of_an_aborted_transaction_are_free() {
    let mut b = Bench::new();
    b.put().await;
    let first = b.send().unwrap();
    b.answer(&first, Verdict::Appended);
    let staging = Arc::new(Staging::new(9, 1, 0, Duration::from_secs(60)));
    let accumulator = &b.window.common.accumulator;
    accumulator.resume(Some(&staging));
    assert!(accumulator.is_transactional());
    let delivery = b.put().await;
    let staged = b.send().unwrap();
    assert_eq!((staged.header().transaction_id, staged.header().base_sequence), (9, 1));
    let within = pb::BatchResult { verdict: Verdict::Staged.into(), ..Default::default() };
    b.result(&staged, within);
    assert_eq!(delivery.outcome().unwrap().unwrap().offset, -1, "not before the commit");
    let run = &staging.commit_request(Duration::ZERO, None).runs[0];
    assert_eq!((run.record_count, run.last_sequence), (1, 1));

    let refused = b.put().await;
    let sent = b.send().unwrap();
    b.answer(&sent, Verdict::NotReady); // in doubt: but nothing of it is ever readable
    b.later();
    let sent = b.send().unwrap();
    b.answer(&sent, Verdict::InvalidBatch);
    assert_eq!(failed(&refused), (ErrorKind::InvalidBatch, Outcome::NotStored));
    assert!(staging.failure().is_some());
    let told = b.add(None, None).await.err().unwrap();
    assert_eq!(told.kind(), ErrorKind::TransactionAborted);

    b.window.roll_back(&staging);
    let accumulator = &b.window.common.accumulator;
    assert!(accumulator.drop_transaction().is_empty());
    accumulator.resume(None);
    b.put().await;
    let next = b.send().unwrap();
    assert_eq!((next.header().transaction_id, next.header().base_sequence), (0, 1));
}

#[tokio::test]
async fn no_batch_begins_while_a_transaction_does() {
    let b = Bench::new();
    let accumulator = &b.window.common.accumulator;
    accumulator.pause(Error::invalid("transaction", "a transaction is being begun"));
    assert_eq!(b.add(None, None).await.err().unwrap().kind(), ErrorKind::InvalidRequest);
    accumulator.resume(None);
    b.add(None, None).await.unwrap();
}

#[tokio::test]
async fn what_the_application_numbered_in_a_transaction_that_is_dropped_comes_again() {
    let b = Bench::new();
    let staging = Arc::new(Staging::new(9, 1, 0, Duration::from_secs(60)));
    let accumulator = &b.window.common.accumulator;
    accumulator.resume(Some(&staging));
    b.add(Some(&[7]), None).await.unwrap();
    assert!(b.add(Some(&[7]), None).await.is_err());
    let told = b.add(None, Some(3)).await.err().unwrap();
    assert_eq!(told.details().field, "expected_offset");
    for batch in accumulator.drop_transaction() {
        b.window.common.settle(&batch, Err(Error::new(ErrorKind::Delivery, "dropped")));
    }
    b.add(Some(&[7]), None).await.unwrap();
}

#[tokio::test]
async fn what_is_for_a_partition_that_is_gone_fails_at_once() {
    let mut b = Bench::new();
    let sent = b.put().await;
    b.send().unwrap();
    let waits = b.put().await;
    let left = b.window.common.accumulator.drop_lane(&b.window.tp);
    b.window.on_partition_gone(left);
    assert_eq!(failed(&sent), (ErrorKind::Delivery, Outcome::Unknown));
    assert_eq!(failed(&waits), (ErrorKind::Delivery, Outcome::NeverSent));
    assert!(b.window.is_idle());
}
