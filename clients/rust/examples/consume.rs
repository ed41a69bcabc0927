//! Reads a topic from its start and commits now and then: `cargo run --example consume -- TOPIC`.

use futures_util::StreamExt;
use oncelog::{Consumer, ConsumerConfig, OffsetReset};

#[tokio::main]
async fn main() -> oncelog::Result<()> {
    let topic = std::env::args().nth(1).unwrap_or_else(|| "greetings".into());
    let mut config = ConsumerConfig::new("localhost:7001");
    config.group_id = Some("readers".into());
    config.auto_offset_reset = OffsetReset::Earliest;
    let consumer = Consumer::new(config)?;
    consumer.subscribe([&topic]).await?;
    let mut records = consumer.records();
    while let Some(record) = records.next().await {
        let record = record?;
        let value = record.value.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
        println!("{}-{} {}: {value}", record.topic, record.partition, record.offset);
        if record.offset % 1000 == 999 {
            consumer.commit().await?;
        }
    }
    Ok(())
}
