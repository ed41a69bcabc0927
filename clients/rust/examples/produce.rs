//! Sends ten records and waits until each is stored: `cargo run --example produce -- TOPIC`.

use oncelog::{Message, Producer, ProducerConfig};

#[tokio::main]
async fn main() -> oncelog::Result<()> {
    let topic = std::env::args().nth(1).unwrap_or_else(|| "greetings".into());
    let producer = Producer::new(ProducerConfig::new("localhost:7001"))?;
    let mut deliveries = vec![];
    for n in 0..10 {
        let value = format!("hello {n}");
        deliveries.push(producer.send(Message::new(&topic, &value).key("k")).await?);
    }
    for delivery in &deliveries {
        let metadata = delivery.wait().await?;
        println!("{}-{} at {}", metadata.topic, metadata.partition, metadata.offset);
    }
    producer.close().await
}
