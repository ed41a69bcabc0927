//! Reads a topic as a member of a group, works, and writes the results in transactions: each
//! record once, however often it is stopped. Run as many as there are partitions, with a name each:
//!
//!     cargo run --example pipeline -- SOURCE TARGET NAME

use oncelog::{
    Consumer, ConsumerConfig, ErrorKind, Message, OffsetReset, Producer, ProducerConfig, Record,
    Transaction,
};

const SERVERS: &str = "localhost:7001";

/// Writes the results of some records, and how far they were read.
async fn work(
    txn: &Transaction,
    target: &str,
    records: &[Record],
    consumer: &Consumer,
) -> oncelog::Result<()> {
    for record in records {
        let value = record.value.as_deref().unwrap_or_default().to_ascii_uppercase();
        let mut message = Message::new(target, &value);
        if let Some(key) = &record.key {
            message = message.key(key);
        }
        txn.send(message).await?;
    }
    txn.commit_positions(consumer).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, source, target, name] = arguments.as_slice() else {
        return Err("usage: pipeline SOURCE TARGET NAME".into());
    };
    let mut config = ProducerConfig::new(SERVERS);
    config.producer_name = Some(format!("pipeline-{target}-{name}"));
    let producer = Producer::new(config)?; // it fences the one before of this name
    loop {
        let mut config = ConsumerConfig::new(SERVERS);
        config.group_id = Some(format!("pipeline-{target}"));
        config.auto_offset_reset = OffsetReset::Earliest;
        let consumer = Consumer::new(config)?;
        consumer.subscribe([source]).await?;
        loop {
            let records = consumer.poll().await?;
            let written =
                producer.transact(async |txn| work(txn, target, &records, &consumer).await).await;
            match written {
                Ok(_) => {}
                // Nothing of it is readable: the records are read again, by the member they belong
                // to.
                Err(error)
                    if error.is(ErrorKind::FencedMember)
                        || error.is(ErrorKind::TransactionAborted) =>
                {
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        consumer.abandon().await?;
    }
}
