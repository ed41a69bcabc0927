//! Where records enter a producer: checked, placed, queued.

use std::sync::Arc;

use crate::accumulator::Addition;
use crate::cluster::{Cluster, no_partition};
use crate::compress::Compression;
use crate::delivery::Delivery;
use crate::errors::{Error, ErrorKind, Result};
use crate::leaders::TopicFacts;
use crate::partitioner::key_partition;
use crate::payload::MAX_PAYLOAD_BYTES;
use crate::producer::Common;
use crate::types::{BatchOptions, Message, TopicPartition};

#[derive(Clone)]
pub(crate) struct Queue {
    pub(crate) common: Arc<Common>,
    pub(crate) cluster: Arc<Cluster>,
}

impl Queue {
    pub(crate) async fn send(&self, message: &Message<'_>) -> Result<Delivery> {
        let sequences = message.sequence.map(|sequence| [sequence]);
        let addition = Addition {
            topic: message.topic,
            partition: message.partition.unwrap_or(-1),
            sticky: false,
            sequences: sequences.as_ref().map(|one| one.as_slice()),
            expected_offset: message.expected_offset,
            whole: false,
            max_batch_bytes: 0,
            messages: std::slice::from_ref(message),
        };
        self.put(addition, message.partition.is_some()).await
    }

    pub(crate) async fn send_batch(
        &self,
        topic: &str,
        partition: i32,
        messages: &[Message<'_>],
        options: &BatchOptions,
    ) -> Result<Delivery> {
        if messages.is_empty() {
            return Err(Error::invalid("messages", "a batch needs at least one record"));
        }
        let addition = Addition {
            topic,
            partition,
            sticky: false,
            sequences: options.sequences.as_deref(),
            expected_offset: options.expected_offset,
            whole: true,
            max_batch_bytes: 0,
            messages,
        };
        self.put(addition, true).await
    }

    async fn put(&self, mut addition: Addition<'_>, placed: bool) -> Result<Delivery> {
        self.check(&addition)?;
        let facts = match self.cluster.leaders.topic(addition.topic) {
            Some(facts) if facts.partitions > 0 => facts,
            _ => self.learn(addition.topic).await?,
        };
        // With a codec only the size as sent counts: the node judges it.
        let packed = self.common.config.compression != Compression::None;
        addition.max_batch_bytes = if packed { MAX_PAYLOAD_BYTES } else { facts.max_batch_bytes };
        if placed {
            let known = 0..facts.partitions as i64;
            if !known.contains(&addition.partition.into()) {
                return Err(no_partition(&TopicPartition::new(addition.topic, addition.partition)));
            }
        } else if let Some(key) = addition.messages[0].key {
            addition.partition = key_partition(key, facts.partitions);
        } else {
            addition.partition = fastrand::i32(0..facts.partitions as i32);
            // A record with demands of its own does not set the place for others.
            addition.sticky = addition.sequences.is_none() && addition.expected_offset.is_none();
        }
        self.common.accumulator.append(&addition).await
    }

    fn check(&self, addition: &Addition<'_>) -> Result<()> {
        if let Some(sequences) = addition.sequences {
            if !self.common.config.enable_idempotence {
                return Err(Error::invalid("sequence", "sequence needs enable_idempotence"));
            }
            let count = addition.messages.len();
            let rising = sequences.windows(2).all(|two| two[0] < two[1]);
            if sequences.len() != count || sequences[0] < 0 || !rising {
                return Err(Error::invalid(
                    "sequences",
                    format!("sequences must be {count} rising numbers from 0, one for each record"),
                ));
            }
        }
        if addition.expected_offset.is_some_and(|offset| offset < 0) {
            return Err(Error::invalid("expected_offset", "expected_offset must not be negative"));
        }
        Ok(())
    }

    pub(crate) async fn learn(&self, topic: &str) -> Result<TopicFacts> {
        if topic.is_empty() {
            return Err(Error::invalid("topic", "the topic must have a name"));
        }
        if let Some(failure) = self.common.accumulator.failure() {
            return Err(failure);
        }
        self.cluster.require_topic(topic, self.common.config.max_block).await?;
        match self.cluster.leaders.topic(topic) {
            Some(facts) if facts.partitions > 0 => Ok(facts),
            _ => Err(Error::new(
                ErrorKind::NotReady,
                format!("topic {topic:?} has no partitions yet"),
            )),
        }
    }
}
