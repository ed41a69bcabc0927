//! The producer's IO: takes ripe batches, finds leaders and keeps a stream to each node. It is one
//! task, which owns all its state; others send it events.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::accumulator::OpenBatch;
use crate::cluster::Cluster;
use crate::errors::{Error, ErrorKind, Outcome, Result};
use crate::identities::Identities;
use crate::pb;
use crate::producer::Common;
use crate::reachability::warn;
use crate::refusal::lost_with_topic;
use crate::sealing::Identity;
use crate::staging::Staging;
use crate::status::{answer_text, is_retriable};
use crate::stream::{ProduceStream, StreamStart};
use crate::types::TopicPartition;
use crate::watch::{Stall, Suspect};
use crate::window::{Reaction, Window};

const TICK_EVERY: Duration = Duration::from_millis(100);
/// A node's limit of `timeout_ms`.
const MOST_COMMIT_TIMEOUT: Duration = Duration::from_secs(600);

/// Events of a sender.
pub(crate) enum Event {
    /// A stream is connected.
    Opened {
        address: String,
        id: u64,
    },
    Results {
        address: String,
        id: u64,
        results: Vec<pb::BatchResult>,
    },
    /// A stream has ended.
    Closed {
        address: String,
        id: u64,
        why: String,
        /// By the node.
        told: bool,
    },
    /// A node gave a reason for ending a stream.
    StreamRefused {
        error: Error,
    },
    Identified {
        tp: TopicPartition,
        result: Result<(Arc<Identity>, i64)>,
    },
    /// Somebody wants to know the producer id of a partition.
    WantIdentity {
        tp: TopicPartition,
        answer: oneshot::Sender<Arc<Identity>>,
    },
    /// It was asked for the leaders of these topics.
    Refreshed {
        topics: Vec<String>,
        problem: Option<Error>,
    },
    /// A leader that does not know the producer was asked for its topic.
    TopicFound {
        tp: TopicPartition,
        refusal: Error,
        problem: Option<Error>,
    },
    Failed(Error),
    /// Somebody wants something to be done with the sender's state.
    Call(Box<dyn FnOnce(&mut Sender) + Send>),
    /// The producer is closed.
    Stop,
    /// The producer was dropped: its records are sent, and then it is closed.
    Finish,
}

pub(crate) struct Sender {
    pub(crate) common: Arc<Common>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) identities: Arc<Identities>,
    pub(crate) events: mpsc::UnboundedSender<Event>,
    /// Waits of the sender beside its events; it ends with the sender.
    pub(crate) tasks: JoinSet<()>,

    pub(crate) windows: HashMap<TopicPartition, Window>,
    pub(crate) busy: HashSet<TopicPartition>,
    /// Nothing is sent to these: they wait for a producer id, or for news of their topic.
    pub(crate) identifying: HashSet<TopicPartition>,
    /// Batches that wait for a partition to have a producer id.
    identified: HashMap<TopicPartition, Vec<oneshot::Sender<Arc<Identity>>>>,
    pub(crate) streams: HashMap<String, ProduceStream>,
    pub(crate) sent_to: HashMap<TopicPartition, String>,
    last_id: u64,
    pub(crate) stale: HashSet<String>,
    pub(crate) refreshing: bool,
    pub(crate) refresh_at: Instant,
    pub(crate) rounds: u32,
    /// Why the last round had no answer.
    pub(crate) no_metadata: Option<Error>,
    /// Topics with stalled partitions: how often the leader was asked for, and when the next
    /// question is due.
    pub(crate) stalls: HashMap<String, Stall>,
    /// Leaders that refused, with their terms: there is another one, or will be.
    pub(crate) suspected: HashMap<TopicPartition, Suspect>,
    /// When metadata was last asked for without a reason.
    pub(crate) asked_at: Instant,
    pub(crate) ticked_at: Instant,
    /// How often it was looked for leaders that are back, though nothing waits for them.
    pub(crate) searches: u32,
    pub(crate) search_at: Instant,
    pub(crate) stopped: bool,
    dropped: bool,
}

impl Sender {
    pub(crate) fn new(
        common: Arc<Common>,
        cluster: Arc<Cluster>,
        identities: Arc<Identities>,
        events: mpsc::UnboundedSender<Event>,
    ) -> Self {
        Self {
            common,
            cluster,
            identities,
            events,
            tasks: JoinSet::new(),
            windows: HashMap::new(),
            busy: HashSet::new(),
            identifying: HashSet::new(),
            identified: HashMap::new(),
            streams: HashMap::new(),
            sent_to: HashMap::new(),
            last_id: 0,
            stale: HashSet::new(),
            refreshing: false,
            refresh_at: Instant::now(),
            rounds: 0,
            no_metadata: None,
            stalls: HashMap::new(),
            suspected: HashMap::new(),
            asked_at: Instant::now(),
            ticked_at: Instant::now(),
            searches: 0,
            search_at: Instant::now(),
            stopped: false,
            dropped: false,
        }
    }

    pub(crate) async fn run(
        mut self,
        mut events: mpsc::UnboundedReceiver<Event>,
        wake: Arc<Notify>,
    ) {
        let mut ticks = interval(TICK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next = None;
        loop {
            let timer = sleep_until(next.unwrap_or_else(|| Instant::now() + TICK_EVERY));
            let event = tokio::select! {
                event = events.recv() => event,
                () = wake.notified() => None,
                () = timer => None,
                Some(_) = self.tasks.join_next() => None,
                _ = ticks.tick() => { self.tick(Instant::now()); None }
            };
            let mut event = event;
            while let Some(some) = event.take().or_else(|| events.try_recv().ok()) {
                if let Event::Stop = some {
                    return self.stop();
                }
                self.take(some);
            }
            next = self.pump(Instant::now());
            if self.dropped && self.common.accumulator.is_empty() {
                self.stop();
                self.cluster.close();
                if let Err(error) = self.common.report() {
                    warn(&format!("a producer was dropped without close: {error}"));
                }
                return;
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Opened { address, id } => {
                if let Some(stream) = self.streams.get_mut(&address).filter(|s| s.id == id) {
                    stream.opened = true;
                    self.cluster.reached.answered(&address);
                    self.cluster.leaders.reached(&address, true);
                }
            }
            Event::Results { address, id, results } => self.answered(&address, id, &results),
            Event::Closed { address, id, why, told } => {
                if self.streams.get(&address).is_some_and(|stream| stream.id == id) {
                    self.close_stream(&address, &why, told);
                }
            }
            // Final; all else is tried again, there or elsewhere.
            Event::StreamRefused { error } => match error.kind() {
                ErrorKind::NotAuthorized | ErrorKind::Unauthenticated => self.fail(&error),
                _ => {}
            },
            Event::Identified { tp, result } => self.adopt(&tp, result),
            Event::WantIdentity { tp, answer } => self.want_identity(tp, answer),
            Event::Refreshed { topics, problem } => self.refreshed(&topics, problem),
            Event::TopicFound { tp, refusal, problem } => {
                self.topic_found(&tp, &refusal, problem);
            }
            Event::Failed(error) => self.fail(&error),
            Event::Call(f) => f(self),
            Event::Stop => unreachable!("the loop has ended"),
            Event::Finish => {
                self.dropped = true;
                let (lasting, _) = self.common.accumulator.begin_flush();
                std::mem::forget(lasting); // nothing lingers any more
            }
        }
    }

    /// Has a task report an event.
    pub(crate) fn spawn(&mut self, task: impl Future<Output = Option<Event>> + Send + 'static) {
        let events = self.events.clone();
        self.tasks.spawn(async move {
            if let Some(event) = task.await {
                let _ = events.send(event); // the sender has ended, then
            }
        });
    }

    // --- the end -------------------------------------------------------------------------

    /// Ends all IO; unacknowledged batches fail, with their outcome.
    fn stop(&mut self) {
        if !self.stopped {
            let message = "the producer was closed before an acknowledgement";
            let error = Error::new(ErrorKind::DeliveryTimeout, message);
            self.fail_everything(&error, &Error::closed("producer"));
        }
    }

    /// The producer cannot go on. All pending records fail, further ones are refused.
    pub(crate) fn fail(&mut self, error: &Error) {
        if self.stopped {
            return;
        }
        let error = fatal(error);
        self.fail_everything(&error, &error);
        self.streams.clear();
    }

    fn fail_everything(&mut self, error: &Error, later: &Error) {
        self.stopped = true;
        if let Some(transaction) = self.common.accumulator.transaction() {
            self.common.accumulator.fail_transaction(&transaction, error);
        }
        self.fail_batches(self.common.accumulator.stop(later), error);
        self.identified.clear(); // waiting callers learn that there will be none
    }

    fn fail_batches(&mut self, unsent: Vec<OpenBatch>, error: &Error) {
        for batch in unsent {
            self.common.stats().records_failed += batch.count as u64;
            let never = error.clone().with_outcome(Outcome::NeverSent);
            self.common.settle(&batch, Err(never));
        }
        for window in self.windows.values_mut() {
            window.fail_all(error);
        }
        self.busy.clear();
    }

    // --- transactions --------------------------------------------------------------------

    /// The transaction cannot be committed. Batches that are not staged fail now, nobody waits for
    /// them.
    pub(crate) fn drop_transaction(&mut self, transaction: &Staging, error: &Error) {
        transaction.fail(error);
        self.fail_batches(self.common.accumulator.drop_transaction(), error);
    }

    /// It was aborted: its sequences are free.
    pub(crate) fn roll_back(&mut self, transaction: &Arc<Staging>) {
        if let Some(failure) = transaction.failure() {
            self.drop_transaction(transaction, &failure);
        }
        for window in self.windows.values_mut() {
            window.roll_back(transaction);
        }
    }

    /// Whether a partition can no longer go on under this identity.
    pub(crate) fn has_used_up(&self, identity: &Identity) -> bool {
        self.windows.values().any(|window| window.has_used_up(identity))
    }

    /// Whether the transaction goes on. It ends with its lease: a new one would fence it.
    fn may_stage(&self, tp: &TopicPartition, transaction: &Staging, now: Instant) -> bool {
        let used_up = |identity: &Identity| {
            self.windows.get(tp).is_some_and(|window| window.has_used_up(identity))
        };
        let current = self.identities.current();
        if current.is_none_or(|current| current.is_over(now) || used_up(&current)) {
            let message = format!("{tp}: the lease of the producer's name cannot be used on");
            let error = Error::new(ErrorKind::ProducerExpired, message);
            self.common.accumulator.fail_transaction(transaction, &error);
        }
        transaction.failure().is_none()
    }

    // --- sending -------------------------------------------------------------------------

    /// Sends all batches that can be sent now, and returns when to look again.
    fn pump(&mut self, now: Instant) -> Option<Instant> {
        if self.stopped {
            return None;
        }
        if let Some(transaction) = self.common.accumulator.transaction()
            && let Some(failure) = transaction.failure()
        {
            self.drop_transaction(&transaction, &transaction.refusal(&failure));
        }
        let (ready, mut next) = self.common.accumulator.ready(now);
        let ready: HashSet<TopicPartition> = ready.into_iter().collect();
        self.busy.extend(ready.iter().cloned());
        for tp in self.busy.iter().cloned().collect::<Vec<_>>() {
            self.feed(&tp, now);
            if self.stopped {
                return None;
            }
            let window = self.window(&tp);
            if window.is_idle() && !ready.contains(&tp) {
                self.busy.remove(&tp);
            } else if let Some(at) = window.retry_at.filter(|at| *at > now) {
                next = sooner(next, at);
            }
        }
        if !self.stale.is_empty() && !self.refreshing {
            if self.refresh_at > now {
                next = sooner(next, self.refresh_at);
            } else {
                self.refresh_stale();
            }
        }
        next
    }

    fn feed(&mut self, tp: &TopicPartition, now: Instant) {
        if self.is_gone(tp) {
            let left = self.common.accumulator.drop_lane(tp);
            let window = self.window(tp);
            let reaction = window.on_partition_gone(left);
            return self.react(tp, reaction);
        }
        if self.identifying.contains(tp) {
            return;
        }
        if let Some(transaction) = self.common.accumulator.transaction()
            && !self.may_stage(tp, &transaction, now)
        {
            return;
        }
        let current = self.identities.current();
        if self.window(tp).needs_identity(now, current.as_deref()) {
            return self.identify(tp);
        }
        let Some(address) = self.cluster.leaders.address(tp) else {
            let window = self.windows.get_mut(tp).expect("it was made above");
            window.lacks_leader(self.no_metadata.as_ref());
            self.stale.insert(tp.topic.to_string());
            return;
        };
        if self.sent_to.get(tp) != Some(&address) {
            self.sent_to.insert(tp.clone(), address.clone());
            let window = self.window(tp);
            window.obstacles.met(format!("{address}: no answer yet"), false);
            window.on_leader_changed(now);
        }
        self.start_stream(&address);
        let window = self.windows.get_mut(tp).expect("it was made above");
        let Some(stream) = self.streams.get_mut(&address).filter(|stream| stream.opened) else {
            // It may be down, and another node lead by now.
            self.stale.insert(tp.topic.to_string());
            return;
        };
        while stream.has_room() {
            match window.next(now, current.as_deref()) {
                Ok(at) => {
                    self.last_id += 1;
                    let message = window.sent(at, self.last_id, now);
                    stream.send(message, tp.clone(), window.serial(at));
                }
                Err(reaction) => return self.react(tp, reaction),
            }
        }
    }

    /// Whether the topic was created anew, with fewer partitions.
    fn is_gone(&self, tp: &TopicPartition) -> bool {
        let topic = self.cluster.leaders.topic(&tp.topic);
        topic.is_some_and(|topic| (1..=tp.partition as usize).contains(&topic.partitions))
    }

    pub(crate) fn window(&mut self, tp: &TopicPartition) -> &mut Window {
        if !self.windows.contains_key(tp) {
            let window = Window::new(tp.clone(), self.common.clone());
            self.windows.insert(tp.clone(), window);
        }
        self.windows.get_mut(tp).expect("it is there now")
    }

    pub(crate) fn react(&mut self, tp: &TopicPartition, reaction: Reaction) {
        match reaction {
            Reaction::Nothing => {}
            Reaction::LeaderLost => self.suspect(tp),
            Reaction::Hinted { leader_id, address } => {
                self.cluster.leaders.hint(tp, leader_id, &address);
            }
            Reaction::Fatal(error) => self.fail(&error),
            Reaction::FatalUnlessRecreated(error) => {
                // Else it is being looked into.
                if !self.identifying.contains(tp) {
                    self.find_topic(tp, error);
                }
            }
        }
    }

    // --- producer ids --------------------------------------------------------------------

    /// Gets a producer id for a partition.
    fn identify(&mut self, tp: &TopicPartition) {
        let resume_from = self.common.config.resume_from.is_some();
        let window = self.window(tp);
        if window.was_reset() && resume_from {
            let message = format!(
                "{tp}: after a batch of unknown outcome the given producer id cannot go on"
            );
            return self.fail(&Error::new(ErrorKind::ProducerFailed, message));
        }
        let used = window.identity.clone();
        window.obstacles.met("no producer id yet".into(), false);
        self.identifying.insert(tp.clone());
        let (identities, tp) = (self.identities.clone(), tp.clone());
        self.spawn(async move {
            let result = identities.acquire(&tp, &used).await;
            Some(Event::Identified { tp, result })
        });
    }

    fn adopt(&mut self, tp: &TopicPartition, result: Result<(Arc<Identity>, i64)>) {
        self.identifying.remove(tp);
        if self.stopped {
            return;
        }
        let is_gone = self.is_gone(tp);
        let topic_id = self.cluster.leaders.topic(&tp.topic).map_or(0, |topic| topic.id);
        let named = self.common.config.producer_name.is_some();
        let window = self.window(tp);
        match result {
            Err(_) if is_gone => {} // so do batches that wait for it
            Err(error) => self.fail(&error),
            Ok((_, last)) if named && last < window.stored_given => {
                let error = lost_with_topic(tp, window.stored_given);
                self.fail(&error);
            }
            Ok((identity, last)) => {
                window.adopt(identity.clone(), last, topic_id);
                for waiting in self.identified.remove(tp).unwrap_or_default() {
                    let _ = waiting.send(identity.clone()); // it may have given up
                }
            }
        }
    }

    fn want_identity(&mut self, tp: TopicPartition, answer: oneshot::Sender<Arc<Identity>>) {
        if self.stopped {
            return;
        }
        let identity = self.window(&tp).identity.clone();
        if identity.serial > 0 {
            let _ = answer.send(identity); // it may have given up
            return;
        }
        self.identified.entry(tp.clone()).or_default().push(answer);
        if !self.identifying.contains(&tp) {
            self.identify(&tp);
        }
    }

    /// A leader does not know the producer. Either all is lost, or it is another topic.
    fn find_topic(&mut self, tp: &TopicPartition, refusal: Error) {
        self.identifying.insert(tp.clone());
        // Nobody else can be sure to know of the topic that this node leads.
        let address = self.sent_to.get(tp).cloned().unwrap_or_default();
        let (cluster, tp) = (self.cluster.clone(), tp.clone());
        self.spawn(async move {
            let problem = cluster.refresh_at(&address, &tp.topic).await.err();
            Some(Event::TopicFound { tp, refusal, problem })
        });
    }

    fn topic_found(&mut self, tp: &TopicPartition, refusal: &Error, problem: Option<Error>) {
        self.identifying.remove(tp);
        if self.stopped {
            return;
        }
        let topic_id = self.cluster.leaders.topic(&tp.topic).map_or(0, |topic| topic.id);
        let window = self.window(tp);
        if problem.is_some() {
            window.send_again(Instant::now());
        } else if topic_id == window.topic_id {
            self.fail(refusal);
        } else {
            let reaction = window.on_topic_created_anew();
            self.react(tp, reaction);
        }
    }

    // --- streams -------------------------------------------------------------------------

    pub(crate) fn start_stream(&mut self, address: &str) {
        if self.streams.contains_key(address) {
            return;
        }
        let Ok(node) = self.cluster.node(address) else { return };
        self.last_id += 1;
        let limit = self.cluster.config.request_timeout * 4 / 5;
        let start = StreamStart {
            id: self.last_id,
            address: address.into(),
            commit_timeout: limit.clamp(Duration::from_millis(1), MOST_COMMIT_TIMEOUT),
            events: self.events.clone(),
            wake: self.common.accumulator.wake.clone(),
        };
        self.streams.insert(address.into(), ProduceStream::start(node, start));
    }

    /// Gives a stream up, if it has not ended by itself.
    pub(crate) fn close_stream(&mut self, address: &str, why: &str, told: bool) {
        self.streams.remove(address);
        if self.stopped {
            return;
        }
        let now = Instant::now();
        self.cluster.avoid(address);
        self.cluster.reached.failed(&format!("{address}: {why}"), now);
        self.cluster.leaders.reached(address, false);
        for tp in self.busy.iter().cloned().collect::<Vec<_>>() {
            if self.sent_to.get(&tp).is_some_and(|known| known == address) {
                let window = self.window(&tp);
                window.obstacles.met(format!("{address}: {why}"), told);
                window.on_connection_lost(now);
                self.cluster.leaders.forget(&tp, address);
                self.stale.insert(tp.topic.to_string());
            }
        }
        self.leave_unavailable();
    }

    fn answered(&mut self, address: &str, id: u64, results: &[pb::BatchResult]) {
        let now = Instant::now();
        self.cluster.leaders.reached(address, true);
        for result in results {
            let Some(stream) = self.streams.get_mut(address).filter(|s| s.id == id) else {
                return;
            };
            let Some((tp, serial)) = stream.outstanding.remove(&result.id) else { continue };
            let reaction = self.window(&tp).on_result(serial, result.id, result, now);
            if is_retriable(result.verdict) {
                let text = format!("{address}: {}", answer_text(result));
                self.window(&tp).obstacles.met(text, true);
            } else {
                self.suspected.remove(&tp); // it leads, after all
            }
            self.react(&tp, reaction);
            if self.stopped {
                return;
            }
        }
    }
}

impl Drop for Sender {
    /// The runtime ends before the producer was closed.
    fn drop(&mut self) {
        if self.stopped || self.common.accumulator.is_empty() {
            return;
        }
        self.stop();
        if let Err(error) = self.common.report() {
            warn(&format!("the runtime has ended before a producer was closed: {error}"));
        }
    }
}

/// Fatal error of a producer: an error of its own kind.
fn fatal(error: &Error) -> Error {
    if error.is(ErrorKind::ProducerFailed) {
        return error.clone();
    }
    Error::new(ErrorKind::ProducerFailed, format!("the producer cannot go on: {error}"))
}

fn sooner(known: Option<Instant>, other: Instant) -> Option<Instant> {
    Some(known.map_or(other, |known| known.min(other)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accumulator::Addition;
    use crate::config::ProducerConfig;
    use crate::delivery::Delivery;
    use crate::types::Message;
    use crate::watch::TICK_LATE;

    /// A producer without answers from its cluster, and a record that waits.
    async fn waiting(
        change: impl FnOnce(&mut ProducerConfig),
    ) -> (Sender, mpsc::UnboundedReceiver<Event>, Delivery) {
        let mut config = ProducerConfig::new("127.0.0.1:1");
        change(&mut config);
        let cluster = Arc::new(Cluster::new(config.client.clone()).unwrap());
        let identities = Arc::new(Identities::new(config.clone(), cluster.clone()));
        let common = Arc::new(Common::new(config, Arc::new(Notify::new())));
        let (events, received) = mpsc::unbounded_channel();
        let sender = Sender::new(common.clone(), cluster, identities, events);
        let message = Message::new("t", "v");
        let addition = Addition {
            topic: "t",
            partition: 0,
            sticky: false,
            choose: None,
            sequences: None,
            expected_offset: None,
            whole: false,
            max_batch_bytes: 1 << 20,
            messages: std::slice::from_ref(&message),
        };
        let delivery = common.accumulator.append(&addition).await.unwrap();
        (sender, received, delivery)
    }

    fn told(delivery: &Delivery) -> (ErrorKind, Outcome) {
        let error = delivery.outcome().expect("it is known").unwrap_err();
        (error.kind(), error.outcome().expect("a record has one"))
    }

    #[tokio::test]
    async fn time_that_passed_unseen_fails_nothing_at_once() {
        let (mut sender, _received, delivery) = waiting(|_| {}).await;
        let later = Instant::now() + sender.common.config.delivery_timeout + TICK_LATE * 2;
        sender.tick(later);
        assert!(delivery.outcome().is_none());
        sender.tick(later + TICK_EVERY);
        assert_eq!(told(&delivery), (ErrorKind::DeliveryTimeout, Outcome::NeverSent));
    }

    #[tokio::test]
    async fn one_whose_producer_was_dropped_goes_on_until_all_outcomes_are_known() {
        let (sender, received, delivery) = waiting(|config| {
            config.client.request_timeout = Duration::from_millis(50);
            config.delivery_timeout = Duration::from_millis(300);
        })
        .await;
        let events = sender.events.clone();
        let running = tokio::spawn(sender.run(received, Arc::new(Notify::new())));
        events.send(Event::Finish).unwrap();
        running.await.unwrap();
        assert_eq!(told(&delivery).0, ErrorKind::DeliveryTimeout);
        let message = delivery.outcome().unwrap().unwrap_err().message().to_owned();
        assert!(message.contains("not sent within"), "it was not cut off: {message}");
    }

    #[test]
    fn records_are_told_of_when_the_runtime_ends() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let delivery = runtime.block_on(async {
            let (sender, received, delivery) = waiting(|_| {}).await;
            tokio::spawn(sender.run(received, Arc::new(Notify::new())));
            delivery
        });
        drop(runtime);
        assert_eq!(told(&delivery), (ErrorKind::DeliveryTimeout, Outcome::NeverSent));
    }
}
