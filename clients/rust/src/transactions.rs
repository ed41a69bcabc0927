//! The transactions of one producer, one after the other: the calls, the signs of life.
//!
//! Staged records go the way of all records; a transaction begins and ends with nothing on its
//! way, so that a batch belongs to the transaction that was open when it began. The meaning of an
//! answer is decided in `staging`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::attempts::Attempts;
use crate::cluster::{Cluster, Trying, ask};
use crate::errors::{Error, ErrorKind, Result};
use crate::following::{Following, Terms, Times};
use crate::groups::{CommitTerms, Groups, on_wire};
use crate::identities::Identities;
use crate::pb;
use crate::producer::Common;
use crate::reachability::warn;
use crate::sealing::Identity;
use crate::sender::{Event, Sender};
use crate::staging::{CommittedTransaction, EndCall, Staging, TransactionState};
use crate::types::{OffsetCommit, TopicPartition};

/// A node that hangs must not hold up a call that another one answers. A commit waits for markers
/// in all partitions.
const ATTEMPT: Duration = Duration::from_secs(2);
const COMMIT_ATTEMPT: Duration = Duration::from_secs(4);
/// A node's default.
const DEFAULT_TOTAL: Duration = Duration::from_secs(15 * 60);
/// So often within the idle time a transaction says that it lives.
const SIGNS_OF_LIFE: u32 = 3;

pub(crate) struct Transactions {
    common: Arc<Common>,
    cluster: Arc<Cluster>,
    identities: Arc<Identities>,
    groups: Groups,
    events: mpsc::UnboundedSender<Event>,
    /// Held by the task that begins or ends.
    turn: tokio::sync::Mutex<Turn>,
    background: Mutex<Background>,
}

#[derive(Default)]
struct Turn {
    current: Option<Arc<Staging>>,
    /// The nonce of a begin that was not answered is used again: it may have begun one.
    nonce: u64,
    /// The serial of the identity that it is of.
    nonce_of: u64,
    unanswered: bool,
    /// A begin had no final answer: it may have begun one that nobody has a handle of.
    in_doubt: bool,
    following: Following,
    /// That the commit under way shall begin.
    next: Option<pb::NextTransaction>,
}

/// Work in the background.
#[derive(Default)]
struct Background {
    alive: Option<AbortHandle>,
    unused: Option<AbortHandle>,
}

fn replace(task: &mut Option<AbortHandle>, by: Option<AbortHandle>) {
    if let Some(before) = std::mem::replace(task, by) {
        before.abort();
    }
}

impl Transactions {
    pub(crate) fn new(
        common: Arc<Common>,
        cluster: Arc<Cluster>,
        identities: Arc<Identities>,
        events: mpsc::UnboundedSender<Event>,
    ) -> Self {
        Self {
            common,
            groups: Groups::new(cluster.clone()),
            cluster,
            identities,
            events,
            turn: Default::default(),
            background: Mutex::default(),
        }
    }

    fn background(&self) -> MutexGuard<'_, Background> {
        self.background.lock().expect("no panic while it is held")
    }

    /// Has the sender carry this out; `None`: it has ended.
    async fn ask_sender<T: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Sender) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        let call = move |sender: &mut Sender| {
            let _ = answer.send(f(sender)); // the caller may have gone
        };
        self.events.send(Event::Call(Box::new(call))).ok()?;
        answered.await.ok()
    }

    // --- begin ---------------------------------------------------------------------------

    pub(crate) async fn begin(self: &Arc<Self>, times: Times) -> Result<Arc<Staging>> {
        if self.common.config.producer_name.is_none() {
            let message = "a transaction needs a producer with a producer_name";
            return Err(Error::invalid("producer_name", message));
        }
        let mut turn = self.turn.lock().await;
        self.end_before(&mut turn).await?;
        let accumulator = &self.common.accumulator;
        accumulator.pause(Error::invalid("transaction", "a transaction is being begun"));
        let beginning = Beginning(Some(self));
        let begun = self.begin_settled(&mut turn, times).await?;
        beginning.done();
        turn.current = Some(begun.clone());
        accumulator.resume(Some(&begun));
        let (this, transaction) = (self.clone(), begun.clone());
        let alive = tokio::spawn(async move { this.keep_alive(&transaction).await });
        replace(&mut self.background().alive, Some(alive.abort_handle()));
        Ok(begun)
    }

    /// The end of the one before must be known.
    async fn end_before(self: &Arc<Self>, turn: &mut Turn) -> Result<()> {
        let Some(before) = turn.current.clone().filter(|before| !before.is_over()) else {
            return Ok(());
        };
        let state = before.state();
        // The caller that asked for the end of one has given up waiting.
        if before.was_dropped() || state != TransactionState::Open {
            let call = match state {
                TransactionState::Committing => EndCall::Commit,
                _ => EndCall::Abort,
            };
            self.pause(&before);
            self.common.settle_all().await;
            self.end(turn, &before, call).await?;
            if before.is_over() {
                return Ok(());
            }
        }
        let message = format!(
            "transaction {} of this producer is {}: end it with commit or abort",
            before.id,
            before.state().as_str()
        );
        Err(Error::new(ErrorKind::TransactionOpen, message))
    }

    async fn begin_settled(&self, turn: &mut Turn, times: Times) -> Result<Arc<Staging>> {
        self.common.settle_all().await;
        if let Some(failure) = self.common.accumulator.failure() {
            return Err(failure);
        }
        let total = if times.total.is_zero() { DEFAULT_TOTAL } else { times.total };
        let used_up = |identity: Arc<Identity>| async move {
            self.ask_sender(move |sender| sender.has_used_up(&identity)).await.unwrap_or(false)
        };
        let identity = match self.identities.for_transaction(total, used_up).await {
            Ok(identity) => identity,
            Err(error) => return Err(self.refused_begin(error).await),
        };
        let terms = Terms { identity: identity.clone(), times };
        let (begun, unused) = turn.following.begin(&terms, Instant::now());
        if let Some((id, identity)) = unused {
            self.abort_unused(id, &identity).await;
        }
        replace(&mut self.background().unused, None);
        let answer = match begun {
            Some(begun) => begun,
            None => match self.call_begin(turn, &terms).await {
                Ok(begun) => begun,
                Err(error) => return Err(self.refused_begin(error).await),
            },
        };
        if answer.transaction_id <= 0 || answer.idle_timeout_ms <= 0 {
            let message = "the node has begun a transaction without a number or time";
            return Err(Error::new(ErrorKind::Internal, message));
        }
        let idle = Duration::from_millis(answer.idle_timeout_ms as u64);
        Ok(Arc::new(Staging::new(
            answer.transaction_id,
            identity.producer_id,
            identity.epoch,
            idle,
        )))
    }

    async fn call_begin(
        &self,
        turn: &mut Turn,
        terms: &Terms,
    ) -> Result<pb::BeginTransactionResponse> {
        let identity = &terms.identity;
        if turn.nonce_of != identity.serial {
            turn.nonce = 0;
            turn.nonce_of = identity.serial;
            turn.unanswered = false;
        }
        turn.draw_nonce();
        let before = turn.current.as_ref().map(|before| before.written()).unwrap_or_default();
        let request = pb::BeginTransactionRequest {
            producer_name: self.common.config.producer_name.clone().unwrap_or_default(),
            producer_id: identity.producer_id,
            epoch: identity.epoch,
            lease_token: identity.lease_token.clone(),
            nonce: turn.nonce,
            idle_timeout_ms: terms.times.idle.as_millis() as i32,
            total_timeout_ms: terms.times.total.as_millis() as i32,
            partitions: on_wire(&before),
        };
        let config = &self.common.config;
        let total = config.max_block.max(config.client.request_timeout);
        let trying = Trying { total, attempt: ATTEMPT };
        let mut repeated = false;
        turn.in_doubt = true;
        let first = self.near(&before);
        let call = ask!(transactions.begin_transaction(request));
        match self
            .cluster
            .call_noting(trying, first.as_deref(), &mut |_| repeated = true, call)
            .await
        {
            Ok(answer) => {
                turn.unanswered = false;
                turn.in_doubt = false;
                Ok(answer)
            }
            Err(error) => {
                if !error.is_retriable() {
                    // A refusal says nothing of an attempt before it that had no answer.
                    turn.unanswered = repeated;
                    turn.in_doubt = repeated;
                }
                Err(error)
            }
        }
    }

    /// Aborts the transaction of a begin without a caller; nobody has a handle of it.
    async fn undo_begin(&self, turn: &mut Turn) {
        let ended = turn.current.as_ref().is_none_or(|current| current.is_over());
        let Some(terms) = turn.following.terms().filter(|_| turn.in_doubt && ended) else { return };
        if turn.nonce_of != terms.identity.serial {
            return;
        }
        let undone = async {
            // The same begin again tells which one it is.
            if let Ok(begun) = self.call_begin(turn, &terms).await {
                self.abort_unused(begun.transaction_id, &terms.identity).await;
            }
        };
        let _ = timeout(ATTEMPT, undone).await; // it is aborted when it has been idle
    }

    /// A producer that is shut out cannot go on at all.
    async fn refused_begin(&self, error: Error) -> Error {
        if error.is(ErrorKind::ProducerFailed) {
            let failure = error.clone();
            self.ask_sender(move |sender| sender.fail(&failure)).await;
        }
        error
    }

    /// A node that leads where the transaction writes: it has a hop less to make.
    fn near(&self, written: &[TopicPartition]) -> Option<String> {
        written.first().and_then(|tp| self.cluster.leaders.address(tp))
    }

    /// Where nobody answers it is aborted when it has been idle, or by the next lease.
    async fn abort_unused(&self, id: i64, identity: &Identity) {
        let request = pb::AbortTransactionRequest {
            transaction_id: id,
            producer_id: identity.producer_id,
            epoch: identity.epoch,
        };
        let _ = self.call_abort(request, ATTEMPT).await;
    }

    async fn call_abort(
        &self,
        request: pb::AbortTransactionRequest,
        total: Duration,
    ) -> Result<()> {
        let call = ask!(transactions.abort_transaction(request));
        self.cluster.call(Trying { total, attempt: ATTEMPT }, call).await.map(|_| ())
    }

    // --- while it is open ----------------------------------------------------------------

    /// Says that it lives, in time for one answer that is lost.
    async fn keep_alive(&self, transaction: &Staging) {
        let pause = transaction.idle / SIGNS_OF_LIFE;
        let request = pb::KeepTransactionsAliveRequest { transaction_ids: vec![transaction.id] };
        let trying = Trying { total: pause, attempt: ATTEMPT };
        loop {
            sleep(pause).await;
            if transaction.is_over() {
                return;
            }
            let call = ask!(transactions.keep_transactions_alive(request.clone()));
            let Ok(answer) = self.cluster.call(trying, call).await else { continue };
            if !answer.ended.is_empty() && transaction.state() == TransactionState::Open {
                let message = format!(
                    "transaction {} is not open any more: it was idle or open for too long, or \
                     was aborted by a successor or an operator",
                    transaction.id
                );
                let error = Error::new(ErrorKind::TransactionAborted, message);
                return self.fail(transaction, &error);
            }
        }
    }

    /// It cannot be committed any more; the sender fails its batches that are not staged.
    pub(crate) fn fail(&self, transaction: &Staging, error: &Error) {
        self.common.accumulator.fail_transaction(transaction, error);
    }

    /// Stores offsets with it. A batch that cannot be stored fails the transaction.
    pub(crate) async fn stage_offsets(
        &self,
        transaction: &Staging,
        group: &str,
        offsets: &HashMap<TopicPartition, OffsetCommit>,
        terms: Option<&CommitTerms>,
    ) -> Result<()> {
        let _turn = self.turn.lock().await;
        transaction.check_open()?;
        let next = || transaction.offsets_of(group).last_number + 1;
        let number = terms.map_or_else(next, |terms| terms.number);
        let deadline = Instant::now() + self.common.config.delivery_timeout;
        let mut tried = Attempts::default();
        for failures in 1.. {
            let staged = self.groups.stage(transaction, group, offsets, number, terms).await;
            let Err(mut error) = staged else { break };
            let pause = self.cluster.backoff.after(&error, failures);
            let over = Instant::now() + pause >= deadline;
            if error.is_retriable() {
                tried.failed(&error);
                error = tried.error();
            }
            if over || !error.is_retriable() || transaction.failure().is_some() {
                // Its staged part is not known: it can only be aborted.
                self.fail(transaction, &error);
                return Err(error);
            }
            sleep(pause).await;
        }
        transaction.staged_offsets(group, number, offsets.len());
        Ok(())
    }

    // --- end -----------------------------------------------------------------------------

    pub(crate) async fn commit(
        self: &Arc<Self>,
        transaction: &Arc<Staging>,
    ) -> Result<CommittedTransaction> {
        let mut turn = self.turn.lock().await;
        if !transaction.is_over() {
            self.pause(transaction);
            self.common.settle_all().await;
            self.end(&mut turn, transaction, EndCall::Commit).await?;
        }
        transaction.committed().ok_or_else(|| transaction.error())
    }

    pub(crate) async fn abort(self: &Arc<Self>, transaction: &Arc<Staging>) -> Result<()> {
        let mut turn = self.turn.lock().await;
        if !transaction.is_over() {
            self.pause(transaction);
            let message = format!("transaction {} was aborted", transaction.id);
            self.fail(transaction, &Error::new(ErrorKind::TransactionAborted, message));
            self.common.settle_all().await;
            self.end(&mut turn, transaction, EndCall::Abort).await?;
        }
        match transaction.state() {
            TransactionState::Aborted => Ok(()),
            TransactionState::Committed => {
                let message =
                    format!("transaction {} is committed, nothing is undone", transaction.id);
                Err(Error::new(ErrorKind::TransactionCommitted, message))
            }
            _ => Err(transaction.error()),
        }
    }

    fn pause(&self, transaction: &Staging) {
        let message = format!("transaction {} is being ended", transaction.id);
        self.common.accumulator.pause(Error::invalid("transaction", message));
    }

    /// Makes calls until an answer is final, or time is up.
    async fn end(
        self: &Arc<Self>,
        turn: &mut Turn,
        transaction: &Arc<Staging>,
        call: EndCall,
    ) -> Result<()> {
        let mut call = transaction.end(call);
        let deadline = Instant::now() + self.common.config.delivery_timeout;
        let mut tried = Attempts::default();
        for failures in 1.. {
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = match call {
                EndCall::Commit => self.call_commit(turn, transaction, left).await,
                EndCall::Abort => {
                    let request = pb::AbortTransactionRequest {
                        transaction_id: transaction.id,
                        producer_id: transaction.producer_id,
                        epoch: transaction.epoch,
                    };
                    self.call_abort(request, left).await.map(|()| Default::default())
                }
            };
            match transaction.answered(call, answer.as_ref().err()) {
                Some(next) => call = next,
                None => {
                    self.over(turn, transaction, answer.unwrap_or_default()).await;
                    return Ok(());
                }
            }
            let Some(error) = answer.err().filter(Error::is_retriable) else { continue };
            tried.failed(&error);
            let pause = self.cluster.backoff.after(&error, failures);
            if Instant::now() + pause >= deadline {
                let message = format!(
                    "transaction {} is {}, and nobody has said how it ended; commit or abort it \
                     again: {}",
                    transaction.id,
                    transaction.state().as_str(),
                    tried.error()
                );
                return Err(Error::new(ErrorKind::CommitTimeout, message));
            }
            sleep(pause).await;
        }
        unreachable!("it ends with an answer or its deadline")
    }

    async fn call_commit(
        &self,
        turn: &mut Turn,
        transaction: &Staging,
        total: Duration,
    ) -> Result<pb::CommitTransactionResponse> {
        let written = transaction.written();
        if turn.next.is_none()
            && let Some(times) = turn.following.wanted()
        {
            turn.draw_nonce();
            turn.next = Some(pb::NextTransaction {
                nonce: turn.nonce,
                idle_timeout_ms: times.idle.as_millis() as i32,
                total_timeout_ms: times.total.as_millis() as i32,
                partitions: on_wire(&written),
            });
        }
        let request = transaction.commit_request(COMMIT_ATTEMPT * 4 / 5, turn.next.clone());
        let trying = Trying { total, attempt: COMMIT_ATTEMPT };
        let mut repeated = false;
        let first = self.near(&written);
        let call = ask!(transactions.commit_transaction(request));
        // Noted before, for the caller may go. It may be decided by a call without an answer, even
        // if the next call is told otherwise.
        let before = transaction.doubt(true);
        let answer = self
            .cluster
            .call_noting(trying, first.as_deref(), &mut |_| repeated = true, call)
            .await;
        transaction.doubt(before || repeated);
        answer
    }

    /// An answer was final, or the last call was refused and it may be asked again.
    async fn over(
        self: &Arc<Self>,
        turn: &mut Turn,
        transaction: &Arc<Staging>,
        answer: pb::CommitTransactionResponse,
    ) {
        match transaction.state() {
            TransactionState::Committed => transaction.published(&answer.runs),
            TransactionState::Aborted => {
                let aborted = transaction.clone();
                self.ask_sender(move |sender| sender.roll_back(&aborted)).await;
            }
            TransactionState::Unknown => {
                // Nobody knows which sequences are stored, either.
                let message = format!("how transaction {} ended is not known", transaction.id);
                let failure = Error::new(ErrorKind::ProducerFailed, message);
                self.ask_sender(move |sender| sender.fail(&failure)).await;
            }
            _ => return,
        }
        replace(&mut self.background().alive, None);
        turn.next = None;
        turn.unanswered &= answer.next.is_none();
        if let Some(kept) = turn.following.ended(Instant::now(), answer.next) {
            let this = self.clone();
            let unused = tokio::spawn(async move {
                sleep(kept).await;
                let mut turn = this.turn.lock().await;
                if let Some((id, identity)) = turn.following.take_unused() {
                    this.abort_unused(id, &identity).await;
                }
            });
            replace(&mut self.background().unused, Some(unused.abort_handle()));
        }
        self.common.accumulator.resume(None);
    }

    // --- the producer ends ---------------------------------------------------------------

    /// Aborts the open transaction. A transaction with a requested commit is left to the cluster.
    pub(crate) async fn close(self: &Arc<Self>) {
        // Where nobody answers it is aborted when it has been idle.
        let _ = timeout(self.common.config.client.request_timeout, async {
            let current = self.turn.lock().await.current.clone();
            if let Some(open) = current.filter(|t| t.state() == TransactionState::Open) {
                if !open.written().is_empty() {
                    let id = open.id;
                    warn(&format!(
                        "transaction {id} has records, and its producer is closed: it is aborted"
                    ));
                }
                let _ = self.abort(&open).await;
            }
            let mut turn = self.turn.lock().await;
            if let Some((id, identity)) = turn.following.take_unused() {
                self.abort_unused(id, &identity).await;
            }
            self.undo_begin(&mut turn).await;
        })
        .await;
    }

    /// Nothing is said any more.
    pub(crate) fn stop(&self) {
        let mut background = self.background();
        replace(&mut background.alive, None);
        replace(&mut background.unused, None);
    }
}

/// A begin that may be given up.
struct Beginning<'a>(Option<&'a Arc<Transactions>>);

impl Beginning<'_> {
    fn done(mut self) {
        self.0 = None;
    }
}

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        let Some(transactions) = self.0 else { return };
        transactions.common.accumulator.resume(None);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let this = transactions.clone();
            runtime.spawn(async move {
                let mut turn = this.turn.lock().await;
                this.undo_begin(&mut turn).await;
            });
        }
    }
}

impl Turn {
    fn draw_nonce(&mut self) {
        if !self.unanswered {
            self.nonce += 1;
        }
        self.unanswered = true;
    }
}
