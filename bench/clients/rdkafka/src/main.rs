//! Measures the send rate of rdkafka, Kafka's client for Rust over librdkafka (acks=all, idempotent,
//! no compression), with the line of JSON of clients/rust/driver's bench. Batches, linger and buffer
//! are those of docs/client-defaults.json.
//!
//!     cargo run --release -- SERVERS TOPIC SECONDS SIZE

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};

const FLUSH: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Counting {
    failed: AtomicU64,
}

impl ClientContext for Counting {}

impl ProducerContext for Counting {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if result.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [servers, topic, seconds, size] = arguments.as_slice() else {
        return Err("usage: rdkafka SERVERS TOPIC SECONDS SIZE".into());
    };
    let limit = Duration::from_secs_f64(seconds.parse()?);
    let value = vec![0; size.parse()?];
    let producer: BaseProducer<Counting> = ClientConfig::new()
        .set("bootstrap.servers", servers)
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("linger.ms", "5")
        .set("batch.size", (1 << 20).to_string())
        .set("batch.num.messages", "1000000")
        .set("queue.buffering.max.kbytes", (64 << 10).to_string())
        .set("queue.buffering.max.messages", "1000000")
        .create_with_context(Counting::default())?;
    send(&producer, topic, &value)?;
    producer.flush(FLUSH)?;
    let (began, used) = (Instant::now(), cpu());
    let mut records: u64 = 0;
    while began.elapsed() < limit {
        for _ in 0..1000 {
            send(&producer, topic, &value)?;
            records += 1;
        }
        producer.poll(Duration::ZERO);
    }
    producer.flush(FLUSH)?;
    let failed = producer.context().failed.load(Ordering::Relaxed);
    if failed > 0 {
        return Err(format!("{failed} records were not stored").into());
    }
    let took = began.elapsed().as_secs_f64();
    let bytes = (records * value.len() as u64) as f64;
    println!(
        r#"{{"records": {records}, "seconds": {took}, "records_per_s": {}, "mib_per_s": {}, "cpu_us_per_record": {}}}"#,
        records as f64 / took,
        bytes / took / f64::from(1 << 20),
        (cpu() - used).as_micros() as f64 / records.max(1) as f64,
    );
    Ok(())
}

/// Waits while the buffer is full.
fn send(producer: &BaseProducer<Counting>, topic: &str, value: &[u8]) -> Result<(), KafkaError> {
    let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(topic).payload(value);
    loop {
        record = match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => back,
            Err((error, _)) => return Err(error),
        };
        producer.poll(Duration::from_millis(10));
    }
}

/// Processor time of this process so far: fields 14 and 15 of its line, in hundredths of a second.
fn cpu() -> Duration {
    let line = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = line.rsplit(") ").next().unwrap_or_default();
    let ticks: u64 =
        behind_name.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}
