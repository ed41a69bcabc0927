//! Batches as they are sent: encoded once, numbered, and the same in each attempt.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::accumulator::OpenBatch;
use crate::compress::{Compression, checksum};
use crate::delivery::Stamp;
use crate::errors::{Error, ErrorKind, Result};
use crate::pb;

/// The right to write as (producer id, epoch). The serial rises with each new one.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    /// 0: nobody.
    pub(crate) producer_id: i64,
    pub(crate) epoch: i32,
    pub(crate) serial: u64,
    /// When to get the next one; `None`: never.
    pub(crate) renew_at: Option<Instant>,
    pub(crate) expire_at: Option<Instant>,
    /// Proves it to a partition that does not know it yet.
    pub(crate) lease_token: Bytes,
    /// Nodes may know the caller: then each batch proves its owner.
    pub(crate) proves_each: bool,
}

impl Identity {
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.expire_at.is_some_and(|at| now >= at)
    }

    /// Whether it need not be renewed for so long, or for half of its lifetime.
    pub(crate) fn lasts(&self, now: Instant, total: Duration) -> bool {
        let (Some(renew_at), Some(expire_at)) = (self.renew_at, self.expire_at) else {
            return true;
        };
        // The last tenth of a lease lies between its renewal and its end.
        let lifetime = (expire_at - renew_at) * 10;
        renew_at.saturating_duration_since(now) >= total.min(lifetime / 2)
    }
}

/// A batch's payload as it is sent. It outlives a change of sequences.
pub(crate) struct SealedPayload {
    data: Bytes,
    crc: u32,
    max_timestamp_us: i64,
}

/// How payloads are compressed.
#[derive(Clone, Copy)]
pub(crate) struct Codec {
    pub(crate) compression: Compression,
    pub(crate) level: Option<i32>,
}

/// A batch on its way. Sent batches never change; the rest is the state of its sending.
pub(crate) struct SealedBatch {
    /// Its own in its window.
    pub(crate) serial: u64,
    pub(crate) batch: OpenBatch,
    message: pb::Batch,
    pub(crate) last_sequence: i64,
    pub(crate) prev_sequence: i64,
    pub(crate) deadline: Instant,
    pub(crate) attempts: u32,
    /// 0: no attempt with an awaited answer.
    pub(crate) attempt_id: u64,
    pub(crate) sent_at: Instant,
    pub(crate) first_sent_at: Instant,
    /// Some attempt ended without an answer that tells its outcome,
    pub(crate) ambiguous: bool,
    /// or without any answer from the node in its time.
    pub(crate) unanswered: bool,
    /// All before it was acknowledged when it was last sent.
    pub(crate) sent_as_head: bool,
    /// Answered OUT_OF_ORDER while an earlier batch was being retried.
    pub(crate) refused: bool,
    pub(crate) acked: bool,
    /// Its records have failed (delivery timeout), but it holds the chain for successors.
    pub(crate) abandoned: bool,
}

impl OpenBatch {
    /// Makes the batch's payload, once.
    fn encode(&mut self, codec: Codec) -> Result<()> {
        if self.payload.is_some() {
            return Ok(());
        }
        let max_timestamp_us = self.columns.max_timestamp();
        let plain = self.columns.encode()?;
        let data = codec
            .compression
            .compress(codec.level, plain)
            .map_err(|e| Error::new(ErrorKind::InvalidBatch, e.to_string()))?;
        self.columns = Default::default();
        self.payload = Some(SealedPayload { crc: checksum(&data), data, max_timestamp_us });
        Ok(())
    }
}

/// Needs of a batch before it can be sealed; the batch comes back with the error.
pub(crate) type Unsealed = Box<(OpenBatch, Error)>;

impl SealedBatch {
    /// Numbers a batch; `prev` is the last sequence before it.
    pub(crate) fn new(
        serial: u64,
        mut batch: OpenBatch,
        identity: &Arc<Identity>,
        prev: i64,
        deadline: Instant,
        codec: Codec,
    ) -> std::result::Result<Self, Unsealed> {
        if let Err(error) = batch.encode(codec) {
            return Err(Box::new((batch, error)));
        }
        let payload = batch.payload.as_ref().expect("it was made above");
        let tp = &batch.delivery.tp;
        let mut header = pb::BatchHeader {
            topic: tp.topic.to_string(),
            partition: tp.partition,
            record_count: batch.count as i32,
            codec: codec.compression.codec().into(),
            crc32c: payload.crc,
            max_timestamp_us: payload.max_timestamp_us,
            expected_offset: batch.expected_offset,
            transaction_id: batch.transaction.as_ref().map_or(0, |transaction| transaction.id),
            ..Default::default()
        };
        let mut message = pb::Batch { payload: payload.data.clone(), ..Default::default() };
        let (mut base, mut last) = (-1, -1);
        if identity.producer_id != 0 {
            (base, last) = (prev + 1, prev + batch.count as i64);
            if let Some(given) = &batch.sequences {
                (base, last) = (given[0], given[given.len() - 1]);
            }
            header.producer_id = identity.producer_id;
            header.epoch = identity.epoch;
            header.base_sequence = base;
            if last != base + batch.count as i64 - 1 {
                header.last_sequence = Some(last);
            }
            if prev != base - 1 {
                header.prev_sequence = Some(prev);
            }
            if prev == -1 || identity.proves_each {
                message.lease_token = identity.lease_token.clone();
            }
        }
        message.header = Some(header);
        batch.delivery.stamp(Stamp {
            producer_id: identity.producer_id,
            epoch: identity.epoch,
            base_sequence: base,
        });
        Ok(Self {
            serial,
            message,
            last_sequence: last,
            prev_sequence: prev,
            deadline,
            attempts: 0,
            attempt_id: 0,
            sent_at: batch.created,
            first_sent_at: batch.created,
            batch,
            ambiguous: false,
            unanswered: false,
            sent_as_head: false,
            refused: false,
            acked: false,
            abandoned: false,
        })
    }

    pub(crate) fn size(&self) -> usize {
        self.message.payload.len() + self.message.lease_token.len() + 100
    }

    /// An attempt to be sent: the same each time but for the id.
    pub(crate) fn message(&self, attempt_id: u64) -> pb::Batch {
        pb::Batch { id: attempt_id, ..self.message.clone() }
    }
}
