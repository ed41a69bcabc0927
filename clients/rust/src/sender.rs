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
use crate::refusal::lost_with_topic;
use crate::sealing::Identity;
use crate::staging::Staging;
use crate::status::{answer_text, is_retriable};
use crate::stream::{ProduceStream, StreamStart};
use crate::types::TopicPartition;
use crate::watch::{Stall, Suspect};
use crate::window::{Reaction, Window};

const TICK_EVERY: Duration = Duration::from_millis(100);
/// What a node allows as `timeout_ms`.
const MOST_COMMIT_TIMEOUT: Duration = Duration::from_secs(600);

/// What happens to a sender.
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
    /// It was asked who leads these topics.
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
}

pub(crate) struct Sender {
    pub(crate) common: Arc<Common>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) identities: Arc<Identities>,
    pub(crate) events: mpsc::UnboundedSender<Event>,
    /// What the sender waits for beside its events; it ends with the sender.
    pub(crate) tasks: JoinSet<()>,

    pub(crate) windows: HashMap<TopicPartition, Window>,
    pub(crate) busy: HashSet<TopicPartition>,
    /// Nothing is sent to these: they wait for a producer id, or for news of their topic.
    identifying: HashSet<TopicPartition>,
    /// Who waits for a partition to have a producer id.
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
    /// Topics with stalled partitions: how often it was asked who leads, and when it is due.
    pub(crate) stalls: HashMap<String, Stall>,
    /// Leaders that refused, with their terms: there is another one, or will be.
    pub(crate) suspected: HashMap<TopicPartition, Suspect>,
    /// When metadata was last asked for without a reason.
    pub(crate) asked_at: Instant,
    pub(crate) stopped: bool,
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
            stopped: false,
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
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Opened { address, id } => {
                if let Some(stream) = self.streams.get_mut(&address).filter(|s| s.id == id) {
                    stream.opened = true;
                }
            }
            Event::Results { address, id, results } => self.answered(&address, id, &results),
            Event::Closed { address, id, why } => {
                if self.streams.get(&address).is_some_and(|stream| stream.id == id) {
                    self.close_stream(&address, &why);
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

    /// Ends all IO; what is not acknowledged fails, its outcome told.
    fn stop(mut self) {
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
        self.identified.clear(); // who waits learns that there will be none
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

    /// The transaction cannot be committed. What is not staged fails now, nobody waits for it.
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

    /// Sends whatever can be sent now, and returns when to look again.
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
            window.hindered = format!("{address}: no answer yet");
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
        let initial = self.common.config.initial.is_some();
        let window = self.window(tp);
        if window.was_reset() && initial {
            let message = format!(
                "{tp}: after a batch of unknown outcome the given producer id cannot go on"
            );
            return self.fail(&Error::new(ErrorKind::ProducerFailed, message));
        }
        let used = window.identity.clone();
        window.hindered = "no producer id yet".into();
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
        let topic_id = self.cluster.leaders.topic(&tp.topic).map_or(0, |topic| topic.id);
        let named = self.common.config.producer_name.is_some();
        let window = self.window(tp);
        match result {
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

    fn start_stream(&mut self, address: &str) {
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
    pub(crate) fn close_stream(&mut self, address: &str, why: &str) {
        self.streams.remove(address);
        if self.stopped {
            return;
        }
        let now = Instant::now();
        self.cluster.avoid(address);
        for tp in self.busy.iter().cloned().collect::<Vec<_>>() {
            if self.sent_to.get(&tp).is_some_and(|known| known == address) {
                let window = self.window(&tp);
                window.hindered = format!("{address}: {why}");
                window.on_connection_lost(now);
                self.cluster.leaders.forget(&tp, address);
                self.stale.insert(tp.topic.to_string());
            }
        }
    }

    fn answered(&mut self, address: &str, id: u64, results: &[pb::BatchResult]) {
        let now = Instant::now();
        for result in results {
            let Some(stream) = self.streams.get_mut(address).filter(|s| s.id == id) else {
                return;
            };
            let Some((tp, serial)) = stream.outstanding.remove(&result.id) else { continue };
            let reaction = self.window(&tp).on_result(serial, result.id, result, now);
            if is_retriable(result.verdict) {
                self.window(&tp).hindered = format!("{address}: {}", answer_text(result));
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

/// What a producer stops with: an error of its own kind.
fn fatal(error: &Error) -> Error {
    if error.is(ErrorKind::ProducerFailed) {
        return error.clone();
    }
    Error::new(ErrorKind::ProducerFailed, format!("the producer cannot go on: {error}"))
}

fn sooner(known: Option<Instant>, other: Instant) -> Option<Instant> {
    Some(known.map_or(other, |known| known.min(other)))
}
