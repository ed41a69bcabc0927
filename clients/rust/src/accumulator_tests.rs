//! Waiting batches, without a sender.

use super::*;
use crate::delivery::Stored;
use crate::producer::Common;

fn common(change: impl FnOnce(&mut ProducerConfig)) -> Common {
    let mut config = ProducerConfig::new("a:1");
    config.linger = Duration::ZERO;
    change(&mut config);
    Common::new(config, Arc::new(Notify::new()))
}

async fn add(
    common: &Common,
    message: Message<'_>,
    partition: i32,
    sticky: bool,
) -> Result<Delivery> {
    let sequences = message.sequence.map(|sequence| [sequence]);
    let choose = || (partition, true);
    let addition = Addition {
        topic: "t",
        partition,
        sticky,
        choose: sticky.then_some(&choose as &(dyn Fn() -> (i32, bool) + Send + Sync)),
        sequences: sequences.as_ref().map(|one| one.as_slice()),
        expected_offset: message.expected_offset,
        whole: false,
        max_batch_bytes: 1 << 20,
        messages: std::slice::from_ref(&message),
    };
    common.accumulator.append(&addition).await
}

fn value(size: usize) -> Vec<u8> {
    vec![7; size]
}

#[tokio::test]
async fn records_without_a_key_stay_until_their_batch_is_closed() {
    let common = common(|c| c.batch_size = 1000);
    let big = value(400);
    let places = [0, 1, 2].map(|partition| (partition, Message::new("t", &big)));
    let mut seen = vec![];
    for (partition, message) in places {
        let delivery = add(&common, message, partition, true).await.unwrap();
        seen.push(delivery.batch.tp.partition);
    }
    assert_eq!(seen, [0, 0, 2], "two fit, and the third closes the batch");
    let next = add(&common, Message::new("t", &big), 1, true).await.unwrap();
    assert_eq!(next.batch.tp.partition, 2, "the batch that was begun is the place now");
    while common.accumulator.take(&TopicPartition::new("t", 2)).is_some() {}
    let small = Message::new("t", "small");
    let next = add(&common, small, 1, true).await.unwrap();
    assert_eq!(next.batch.tp.partition, 1, "another place after the batch was taken");
}

#[tokio::test]
async fn a_full_buffer_waits_and_gives_up() {
    let common = common(|c| {
        c.batch_size = 1000;
        c.buffer_memory = 1000;
        c.max_block = Duration::from_millis(20);
    });
    let big = value(700);
    add(&common, Message::new("t", &big), 0, false).await.unwrap();
    let error = add(&common, Message::new("t", &big), 0, false).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::BufferFull);
    let batch = common.accumulator.take(&TopicPartition::new("t", 0)).unwrap();
    common.settle(&batch, Ok(Stored { base_offset: 0, run: None, duplicate: false }));
    assert_eq!(common.accumulator.used(), 0);
    add(&common, Message::new("t", &big), 0, false).await.unwrap();
    let huge = value(2000);
    let error = add(&common, Message::new("t", &huge), 0, false).await.err().unwrap();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::BatchTooLarge, Some(Outcome::NeverSent))
    );
}

#[tokio::test]
async fn who_waits_for_room_gets_it_when_it_is_there() {
    let common = Arc::new(common(|c| {
        c.batch_size = 1000;
        c.buffer_memory = 1000;
    }));
    let big = value(700);
    add(&common, Message::new("t", &big), 0, false).await.unwrap();
    let waiting = tokio::spawn({
        let common = common.clone();
        async move { add(&common, Message::new("t", &value(700)), 1, false).await.map(|_| ()) }
    });
    tokio::task::yield_now().await;
    let batch = common.accumulator.take(&TopicPartition::new("t", 0)).unwrap();
    common.settle(&batch, Ok(Stored { base_offset: 0, run: None, duplicate: false }));
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn sequences_rise_and_are_given_by_one_of_both() {
    let common = common(|_| {});
    add(&common, Message::new("t", "a").sequence(4), 0, false).await.unwrap();
    for message in [Message::new("t", "b"), Message::new("t", "b").sequence(4)] {
        let error = add(&common, message, 0, false).await.err().unwrap();
        assert_eq!(error.details().field, "sequence", "{error}");
    }
    add(&common, Message::new("t", "a"), 1, false).await.unwrap();
    let error = add(&common, Message::new("t", "b").sequence(9), 1, false).await.err().unwrap();
    assert_eq!(error.details().field, "sequence", "{error}");
}

#[tokio::test]
async fn an_expected_offset_stands_alone() {
    let common = common(|_| {});
    add(&common, Message::new("t", "a"), 0, false).await.unwrap();
    add(&common, Message::new("t", "b").expected_offset(1), 0, false).await.unwrap();
    add(&common, Message::new("t", "c"), 0, false).await.unwrap();
    let tp = TopicPartition::new("t", 0);
    let taken: Vec<_> = std::iter::from_fn(|| common.accumulator.take(&tp)).collect();
    let expected: Vec<_> = taken.iter().map(|batch| (batch.count, batch.expected_offset)).collect();
    assert_eq!(expected, [(1, None), (1, Some(1)), (1, None)]);
}

#[tokio::test]
async fn what_lingers_is_sent_when_its_time_has_come_or_by_a_flush() {
    let common = common(|c| c.linger = Duration::from_secs(3600));
    let tp = TopicPartition::new("t", 0);
    let delivery = add(&common, Message::new("t", "a"), 0, false).await.unwrap();
    let (ready, next) = common.accumulator.ready(Instant::now());
    assert!(ready.is_empty() && next.is_some());
    assert!(common.accumulator.take(&tp).is_none());
    let (ready, _) = common.accumulator.ready(next.unwrap());
    assert!(ready.contains(&tp) && ready.len() == 1);
    let batch = common.accumulator.take(&tp).unwrap();
    let (guard, waiting) = common.accumulator.begin_flush();
    assert_eq!(waiting.len(), 1, "what is on its way is waited for");
    add(&common, Message::new("t", "b"), 0, false).await.unwrap();
    assert!(common.accumulator.take(&tp).is_some(), "nothing lingers during a flush");
    drop(guard);
    common.settle(&batch, Ok(Stored { base_offset: 5, run: None, duplicate: false }));
    assert_eq!(delivery.wait().await.unwrap().offset, 5);
}

#[tokio::test]
async fn what_was_looked_at_is_not_reported_again() {
    let common = common(|_| {});
    let one = add(&common, Message::new("t", "a"), 0, false).await.unwrap();
    let two = add(&common, Message::new("t", "b"), 0, false).await.unwrap();
    let batch = common.accumulator.take(&TopicPartition::new("t", 0)).unwrap();
    common.settle(&batch, Err(Error::new(ErrorKind::InvalidBatch, "wrong")));
    assert!(one.wait().await.is_err());
    let error = common.report().unwrap_err();
    assert_eq!((error.kind(), error.details().count), (ErrorKind::Undelivered, 1));
    assert!(two.wait().await.is_err());
    common.report().unwrap();
}

#[tokio::test]
async fn no_record_joins_a_batch_whose_time_is_nearly_over() {
    let common = common(|_| {});
    let tp = TopicPartition::new("t", 0);
    let before = now_us();
    let one = add(&common, Message::new("t", "a"), 0, false).await.unwrap();
    let quarter = ProducerConfig::new("a:1").delivery_timeout.as_micros() as i64 / 4;
    let began = common.accumulator.state().open(&tp).unwrap().join_until_us - quarter;
    assert!((before..=now_us()).contains(&began), "records may join for a quarter of their time");
    let same = add(&common, Message::new("t", "b"), 0, false).await.unwrap();
    common.accumulator.state().open(&tp).unwrap().join_until_us = 0;
    let other = add(&common, Message::new("t", "c"), 0, false).await.unwrap();
    assert!(Arc::ptr_eq(&one.batch, &same.batch) && !Arc::ptr_eq(&same.batch, &other.batch));
}

#[tokio::test]
async fn what_waits_for_a_leader_attracts_no_record_without_a_key() {
    let common = common(|c| c.linger = Duration::from_secs(60));
    let add_keyless = async |chosen: (i32, bool)| {
        let choose = move || chosen;
        let message = Message::new("t", "v");
        let addition = Addition {
            topic: "t",
            partition: -1,
            sticky: true,
            choose: Some(&choose),
            sequences: None,
            expected_offset: None,
            whole: false,
            max_batch_bytes: 1 << 20,
            messages: std::slice::from_ref(&message),
        };
        common.accumulator.append(&addition).await.unwrap().batch.tp.partition
    };
    assert_eq!(add_keyless((0, false)).await, 0, "there is no other one");
    assert_eq!(add_keyless((1, true)).await, 1, "one has a leader now");
    assert_eq!(add_keyless((2, true)).await, 1, "it goes on there");
    common.accumulator.leave_unavailable(|_, partition| partition != 1);
    assert_eq!(add_keyless((2, true)).await, 2, "its leader is lost");
}
