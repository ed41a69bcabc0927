//! The producer's identity: leases of producer ids, names, and where a partition goes on. All
//! partitions share one identity; one that was reset gets its own, so the others are left alone.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::attempts::Attempts;
use crate::cluster::{Cluster, Trying, ask};
use crate::config::ProducerConfig;
use crate::errors::{Error, ErrorKind, Result};
use crate::pb;
use crate::refusal::gone;
use crate::sealing::Identity;
use crate::types::TopicPartition;

pub(crate) struct Identities {
    config: ProducerConfig,
    cluster: Arc<Cluster>,
    current: Mutex<Option<Arc<Identity>>>,
    /// Failures of the call in progress so far.
    tried: Mutex<Attempts>,
    /// Held by the leasing goroutine.
    leasing: tokio::sync::Mutex<Leasing>,
}

#[derive(Default)]
struct Leasing {
    serial: u64,
    /// The newest epoch that this producer has leased under its name.
    newest: Option<Arc<Identity>>,
    /// Number and start of a lease under the name that has had no answer yet. It is repeated, not
    /// made anew: if it took effect, another one would be refused as its successor.
    unanswered: Option<(u64, Instant)>,
}

impl Identities {
    pub(crate) fn new(config: ProducerConfig, cluster: Arc<Cluster>) -> Self {
        Self {
            config,
            cluster,
            current: Mutex::default(),
            tried: Mutex::default(),
            leasing: Default::default(),
        }
    }

    pub(crate) fn current(&self) -> Option<Arc<Identity>> {
        self.current.lock().expect("no panic while it is held").clone()
    }

    fn set_current(&self, identity: &Arc<Identity>) {
        *self.current.lock().expect("no panic while it is held") = Some(identity.clone());
    }

    /// Why there is no producer id yet.
    pub(crate) fn hindered(&self) -> Option<Error> {
        self.tried().telling().cloned()
    }

    fn tried(&self) -> MutexGuard<'_, Attempts> {
        self.tried.lock().expect("no panic while it is held")
    }

    fn attempt(&self) -> Duration {
        Duration::from_secs(2).min(self.cluster.config.request_timeout)
    }

    /// Returns an identity that the partition has not used, and its last sequence there. It goes
    /// on trying while errors are retriable; records have their own deadline.
    pub(crate) async fn acquire(
        &self,
        tp: &TopicPartition,
        used: &Identity,
    ) -> Result<(Arc<Identity>, i64)> {
        let identity = self.unused(used).await?;
        if let Some(resume_from) = &self.config.resume_from {
            return Ok((identity, resume_from.next_sequences.get(tp).copied().unwrap_or(0) - 1));
        }
        if self.config.producer_name.is_none() {
            return Ok((identity, -1));
        }
        let last = self.open(tp, &identity).await?;
        Ok((identity, last))
    }

    async fn unused(&self, used: &Identity) -> Result<Arc<Identity>> {
        let mut leasing = self.leasing.lock().await;
        match self.current() {
            Some(current) if !current.is_over(Instant::now()) => {
                if current.serial > used.serial {
                    return Ok(current);
                }
                self.lease(&mut leasing).await
            }
            _ => {
                let identity = self.lease(&mut leasing).await?;
                self.set_current(&identity);
                Ok(identity)
            }
        }
    }

    /// Leases the next id at 90 % of the lifetime; partitions change over when drained. It
    /// returns without a lease while somebody else leases, or `is_transactional` says so.
    pub(crate) async fn renew_if_due(
        &self,
        now: Instant,
        is_transactional: impl Fn() -> bool,
    ) -> Result<()> {
        let Ok(mut leasing) = self.leasing.try_lock() else { return Ok(()) };
        let renew_at = self.current().and_then(|current| current.renew_at);
        // A transaction that begins is paused first, and then waits for the leasing goroutine.
        if is_transactional() || renew_at.is_none_or(|at| now < at) {
            return Ok(());
        }
        match timeout(Duration::from_secs(1), self.lease(&mut leasing)).await {
            Ok(Ok(identity)) => self.set_current(&identity),
            Ok(Err(error)) if !error.is_retriable() => return Err(error),
            _ => {} // it is tried again
        }
        Ok(())
    }

    /// An identity that lasts for a transaction, if leases last so long.
    ///
    /// It is not renewed while one is open: that would raise the name's epoch, and fence it.
    /// `used_up` says whether one will not do.
    pub(crate) async fn for_transaction<F>(
        &self,
        total: Duration,
        used_up: impl FnOnce(Arc<Identity>) -> F,
    ) -> Result<Arc<Identity>>
    where
        F: Future<Output = bool>,
    {
        let mut leasing = self.leasing.lock().await;
        if let Some(newest) = leasing.newest.clone()
            && newest.lasts(Instant::now(), total)
            && !used_up(newest.clone()).await
        {
            self.set_current(&newest);
            return Ok(newest);
        }
        let identity = self.lease(&mut leasing).await?;
        self.set_current(&identity);
        Ok(identity)
    }

    async fn lease(&self, leasing: &mut Leasing) -> Result<Arc<Identity>> {
        leasing.serial += 1;
        let serial = leasing.serial;
        if let Some(resume_from) = &self.config.resume_from {
            return Ok(Arc::new(Identity {
                producer_id: resume_from.producer_id,
                epoch: resume_from.epoch,
                serial,
                lease_token: resume_from.lease_token.clone(),
                proves_each: self.config.client.security.is_secured(),
                ..Default::default()
            }));
        }
        let mut request = pb::LeaseProducerRequest::default();
        // Counted from before the first call, so that it ends too early rather than too late.
        let mut start = Instant::now();
        if let Some(name) = &self.config.producer_name {
            request.producer_name.clone_from(name);
            // One number for all attempts of this lease: the epoch rises by one at most.
            (request.nonce, start) = *leasing.unanswered.get_or_insert_with(|| (nonce(), start));
            if let Some(newest) = &leasing.newest {
                // A name that another instance has leased since must not be taken back.
                request.held_producer_id = newest.producer_id;
                request.held_epoch = newest.epoch;
            }
        }
        let answer = self.lease_until_answered(&request).await?;
        let lifetime = Duration::from_millis(answer.lifetime_ms.max(0) as u64);
        let limited = !lifetime.is_zero();
        let identity = Arc::new(Identity {
            producer_id: answer.producer_id,
            epoch: answer.epoch,
            serial,
            renew_at: limited.then(|| start + lifetime / 10 * 9),
            expire_at: limited.then(|| start + lifetime),
            lease_token: answer.lease_token,
            proves_each: self.config.client.security.is_secured(),
        });
        if self.config.producer_name.is_some() {
            leasing.newest = Some(identity.clone());
            leasing.unanswered = None;
        }
        Ok(identity)
    }

    async fn lease_until_answered(
        &self,
        request: &pb::LeaseProducerRequest,
    ) -> Result<pb::LeaseProducerResponse> {
        let trying = Trying { total: self.cluster.config.request_timeout, attempt: self.attempt() };
        for failures in 1.. {
            let call = ask!(producers.lease_producer(request.clone()));
            let mut note = |error: &Error| self.tried().failed(error);
            match self.cluster.call_noting(trying, None, &mut note, call).await {
                Ok(answer) => {
                    *self.tried() = Attempts::default();
                    return Ok(answer);
                }
                Err(error) if !error.is_retriable() => return Err(error),
                Err(_) => sleep(self.cluster.backoff.delay(failures)).await,
            }
        }
        unreachable!("it ends with an answer")
    }

    /// Fences the predecessor in this partition and returns the last stored sequence.
    async fn open(&self, tp: &TopicPartition, identity: &Identity) -> Result<i64> {
        let request = pb::OpenProducerRequest {
            producer_id: identity.producer_id,
            epoch: identity.epoch,
            lease_token: identity.lease_token.clone(),
            partitions: vec![pb::TopicPartition {
                topic: tp.topic.to_string(),
                partition: tp.partition,
            }],
        };
        for failures in 1.. {
            let address = self.cluster.leaders.address(tp).unwrap_or_default();
            let opened = match self.open_at(&address, &request).await {
                Ok(opened) => Some(opened),
                Err(error) if !error.is_retriable() => return Err(error),
                Err(error) => {
                    self.tried().failed(&error);
                    None
                }
            };
            if let Some(opened) = &opened {
                if let Some(result) = self.opened(tp, opened) {
                    *self.tried() = Attempts::default();
                    return result;
                }
                let message = format!("{tp}: {}: {}", opened.error, opened.message);
                self.tried().failed(&Error::new(ErrorKind::NotReady, message));
            }
            self.cluster.leader_failed(&address, failures);
            sleep(self.cluster.backoff.delay(failures)).await;
            if let Some(opened) = opened
                && opened.error == "NOT_LEADER"
                && failures == 1
            {
                self.cluster.leaders.hint(tp, opened.leader_id, &opened.leader_address);
                continue;
            }
            self.cluster.leaders.suspect(tp);
            match self.cluster.refresh(&[tp.topic.to_string()]).await {
                Err(error) if !error.is_retriable() => return Err(error),
                _ if self.cluster.leaders.leader(tp).is_none() => return Err(gone(tp)),
                _ => {}
            }
        }
        unreachable!("it ends with an answer")
    }

    /// The last sequence, or why there will be none; `None`: worth another try.
    fn opened(&self, tp: &TopicPartition, opened: &pb::OpenedPartition) -> Option<Result<i64>> {
        let epoch = opened.current_epoch;
        match opened.error.as_str() {
            "" => Some(Ok(opened.last_sequence)),
            "FENCED" => {
                let name = self.config.producer_name.as_deref().unwrap_or_default();
                let message = format!("{tp}: producer_name {name:?} was taken over, epoch {epoch}");
                let error = Error::new(ErrorKind::Fenced, message);
                Some(Err(error.with(|d| d.current_epoch = epoch)))
            }
            "UNKNOWN_PRODUCER" | "PRODUCER_EXPIRED" => {
                let message = format!("{tp}: {}: {}", opened.error, opened.message);
                Some(Err(Error::new(ErrorKind::UnknownProducer, message)))
            }
            _ => None,
        }
    }

    async fn open_at(
        &self,
        address: &str,
        request: &pb::OpenProducerRequest,
    ) -> Result<pb::OpenedPartition> {
        if address.is_empty() {
            return Err(Error::new(ErrorKind::NotReady, "no leader is known"));
        }
        let call = ask!(producers.open_producer(request.clone()));
        let answer = self.cluster.call_at(address, self.attempt(), call).await?;
        let count = answer.partitions.len();
        let mut partitions = answer.partitions.into_iter();
        match (partitions.next(), count) {
            (Some(opened), 1) => Ok(opened),
            _ => Err(Error::new(
                ErrorKind::Internal,
                format!("the node gave {count} answers to 1 question"),
            )),
        }
    }

    /// The producer's last sequence in a partition, from its leader; -1: none.
    pub(crate) async fn last_stored(
        &self,
        tp: &TopicPartition,
        identity: &Identity,
    ) -> Result<i64> {
        let request = pb::DescribeProducersRequest {
            topic: tp.topic.to_string(),
            partition: tp.partition,
            producer_id: identity.producer_id,
            limit: 1,
            ..Default::default()
        };
        let call = ask!(producers.describe_producers(request));
        let answer = self.cluster.call_leader(tp, call).await?;
        Ok(answer.producers.first().map_or(-1, |producer| producer.last_sequence))
    }
}

/// One number for all attempts of a call: repeated, it raises an epoch once.
pub(crate) fn nonce() -> u64 {
    fastrand::u64(1..)
}
