//! Measures the rate at which one process sends to a topic, or reads from it, and the processor
//! time of this process. It prints one line of JSON.
//!
//!     cargo run --release -p oncelog-driver --bin bench -- produce SERVERS TOPIC SECONDS SIZE [none|lz4|zstd]
//!     cargo run --release -p oncelog-driver --bin bench -- consume SERVERS TOPIC

use std::time::{Duration, Instant};

use oncelog::{
    Compression, Consumer, ConsumerConfig, Message, OffsetReset, Producer, ProducerConfig,
};
use serde_json::{Value, json};

type Outcome = Result<Value, Box<dyn std::error::Error>>;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let figures = match words.as_slice() {
        ["produce", servers, topic, seconds, size, rest @ ..] => {
            let limit = Duration::from_secs_f64(seconds.parse()?);
            let codec = rest.first().copied().unwrap_or("none");
            produce(servers, topic, limit, size.parse()?, codec).await?
        }
        ["consume", servers, topic] => consume(servers, topic).await?,
        _ => {
            return Err(
                "usage: bench produce SERVERS TOPIC SECONDS SIZE [CODEC] | consume ...".into()
            );
        }
    };
    println!("{figures}");
    Ok(())
}

/// Processor time of this process so far: fields 14 and 15 of its line, in hundredths of a second.
fn cpu() -> Duration {
    let line = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = line.rsplit(") ").next().unwrap_or_default();
    let ticks: u64 =
        behind_name.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}

fn figures(records: u64, bytes: u64, began: Instant, used: Duration) -> Value {
    let seconds = began.elapsed().as_secs_f64();
    let cpu_us = (cpu() - used).as_micros() as f64;
    json!({
        "records": records, "seconds": seconds,
        "records_per_s": records as f64 / seconds,
        "mib_per_s": bytes as f64 / seconds / f64::from(1 << 20),
        "cpu_us_per_record": cpu_us / records.max(1) as f64,
    })
}

async fn produce(servers: &str, topic: &str, limit: Duration, size: usize, codec: &str) -> Outcome {
    let mut config = ProducerConfig::new(servers);
    config.compression = match codec {
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        _ => Compression::None,
    };
    let producer = Producer::new(config)?;
    let value = vec![0; size];
    producer.send_and_wait(Message::new(topic, &value)).await?;
    let (began, used) = (Instant::now(), cpu());
    let mut records = 0;
    while began.elapsed() < limit {
        for _ in 0..1000 {
            producer.send(Message::new(topic, &value)).await?;
            records += 1;
        }
    }
    producer.flush().await?;
    let result = figures(records, records * size as u64, began, used);
    producer.close().await?;
    Ok(result)
}

/// Reads the present records of the topic.
async fn consume(servers: &str, topic: &str) -> Outcome {
    let mut config = ConsumerConfig::new(servers);
    config.auto_offset_reset = OffsetReset::Earliest;
    let consumer = Consumer::new(config)?;
    consumer.subscribe([topic]).await?;
    let ends = consumer.end_offsets(&consumer.assignment()).await?;
    let left: i64 = ends.values().sum();
    if left == 0 {
        return Err("the topic is empty".into());
    }
    let (began, used) = (Instant::now(), cpu());
    let (mut records, mut bytes) = (0, 0);
    while records < left as u64 {
        for record in consumer.poll().await? {
            records += 1;
            bytes += record.value.map_or(0, |value| value.len() as u64);
        }
    }
    Ok(figures(records, bytes, began, used))
}
