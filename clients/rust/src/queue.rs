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
            choose: None,
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
            choose: None,
            sequences: options.sequences.as_deref(),
            expected_offset: options.expected_offset,
            whole: true,
            max_batch_bytes: 0,
            messages,
        };
        self.put(addition, true).await
    }

    /// Any partition, one with a leader that can be reached if there is any; and whether it has.
    fn choose(&self, topic: &str, partitions: i32) -> (i32, bool) {
        let any = fastrand::i32(0..partitions);
        if self.cluster.leaders.is_available(topic, any) {
            return (any, true);
        }
        let available = self.cluster.leaders.available(topic);
        match available.len() {
            0 => (any, false),
            count => (available[fastrand::usize(..count)], true),
        }
    }

    async fn put(&self, addition: Addition<'_>, placed: bool) -> Result<Delivery> {
        self.check(&addition)?;
        let topic = addition.topic;
        let facts = match self.cluster.leaders.topic(addition.topic) {
            Some(facts) if facts.partitions > 0 => facts,
            _ => self.learn(addition.topic).await?,
        };
        let choose = || self.choose(topic, facts.partitions as i32);
        let mut addition = addition;
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
            addition.choose = Some(&choose);
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
