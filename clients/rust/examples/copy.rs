//! Copies a partition exactly once, and keeps no file of its own for it: a record's offset in the
//! source is its sequence in the target, so the target says how far the copy has come.
//!
//!     cargo run --example copy -- SOURCE TARGET PARTITION
//!
//! It ends when it has copied the source's records of its start; it may be killed at any time, and
//! started again.

use oncelog::{
    Consumer, ConsumerConfig, Message, Producer, ProducerConfig, Record, TopicPartition,
};

const SERVERS: &str = "localhost:7001";

fn message<'a>(target: &'a str, record: &'a Record) -> Message<'a> {
    let mut message = match &record.value {
        Some(value) => Message::new(target, value),
        None => Message::null(target),
    };
    if let Some(key) = &record.key {
        message = message.key(key);
    }
    for header in &record.headers {
        message = match &header.value {
            Some(value) => message.header(&header.key, value),
            None => message.null_header(&header.key),
        };
    }
    // The same bytes each time: so a repeated record is recognised.
    message.timestamp_us(record.timestamp_us).sequence(record.offset)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, source, target, partition] = arguments.as_slice() else {
        return Err("usage: copy SOURCE TARGET PARTITION".into());
    };
    let partition: i32 = partition.parse()?;
    let from = TopicPartition::new(source.as_str(), partition);
    let to = TopicPartition::new(target.as_str(), partition);

    let mut config = ProducerConfig::new(SERVERS);
    config.producer_name = Some(format!("copy-{source}-{target}-{partition}"));
    let producer = Producer::new(config)?; // it fences a copy that is still running
    let mut next = producer.position(&to).await? + 1;

    let consumer = Consumer::new(ConsumerConfig::new(SERVERS))?;
    consumer.assign(std::slice::from_ref(&from)).await?;
    let end = consumer.end_offsets(std::slice::from_ref(&from)).await?[&from];
    consumer.seek(&from, next)?;
    while next < end {
        for record in consumer.poll().await? {
            producer.send(message(target, &record).partition(partition)).await?;
            next = record.offset + 1;
        }
    }
    producer.close().await?;
    Ok(())
}
