//! The consumer's IO: long polls to each leader, streams where there is much to read. One poll is
//! on its way per node and 1000 partitions; it covers those that the node leads, that have room
//! and that no stream brings. Leader changes, restarts and broken connections never reach the
//! user. It is one task, which owns all its state; others send it events.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use crate::buffer::{Added, FetchBuffer, Wanted, corrupt};
use crate::catchup::{CatchUp, is_worth_it, read_ahead};
use crate::cluster::{Cluster, ask, no_partition};
use crate::config::{ConsumerConfig, OffsetReset};
use crate::errors::{Error, ErrorKind, Result};
use crate::pb::{self, PartitionError};
use crate::positions::Positions;
use crate::routes::Routes;
use crate::types::TopicPartition;

/// How long an offset above a leader's high watermark may last: a new leader learns how far the
/// log is committed a moment after its election.
const AHEAD_GRACE: Duration = Duration::from_secs(10);
/// A node's limits.
const MOST_WAIT: Duration = Duration::from_secs(60);
/// A poll that is late by so much: others are asked for the leader.
const LATE_BY: Duration = Duration::from_secs(1);
/// A node takes no more partitions in a Fetch.
pub(crate) const MOST_FETCHED: usize = 1000;
/// Streams at the same time; further partitions are polled until one of these is done.
const MOST_STREAMS: usize = 8;
/// When nothing else says when to look for leaders again.
const LOST_PAUSE: Duration = Duration::from_millis(50);

/// Where a Fetch goes, and for which partitions.
type Place = (String, usize);

/// A Fetch on its way.
struct Poll {
    id: u64,
    /// The partitions with their generations.
    asked: HashMap<TopicPartition, u64>,
    task: AbortHandle,
}

/// Events of a fetcher.
enum Event {
    Polled {
        place: Place,
        id: u64,
        wanted: Vec<Wanted>,
        answer: Result<pb::FetchResponse>,
    },
    /// A stream has ended, perhaps because the node refused.
    Streamed {
        id: u64,
        at: Wanted,
        refused: Option<pb::PartitionRecords>,
        address: String,
    },
    Located {
        missing: Vec<Wanted>,
    },
    /// other: the topics that were asked for, where only another cluster answered.
    Refreshed {
        other: Option<(Vec<String>, Error)>,
    },
    /// A leader that has less than was read was asked for its topic.
    TopicAsked,
    /// A topic that a node did not know was asked for.
    Confirmed {
        wanted: Wanted,
        found: Result<()>,
    },
}

pub(crate) struct Fetcher {
    config: ConsumerConfig,
    cluster: Arc<Cluster>,
    routes: Arc<Routes>,
    positions: Arc<Positions>,
    buffer: Arc<FetchBuffer>,
    events: mpsc::UnboundedSender<Event>,
    /// Waits of the fetcher beside its events; it ends with the fetcher.
    tasks: JoinSet<()>,

    last_id: u64,
    polls: HashMap<Place, Poll>,
    /// Partitions of polls that were refused for good, each with a group of its own until it is
    /// read.
    alone: HashMap<TopicPartition, usize>,
    locating: HashSet<TopicPartition>,
    ahead_since: HashMap<TopicPartition, Instant>,
    refreshing: bool,
    /// Partitions that are not polled because a stream brings them.
    streams: HashMap<TopicPartition, CatchUp>,
}

impl Fetcher {
    /// Runs until its task is aborted.
    pub(crate) async fn run(
        positions: Arc<Positions>,
        buffer: Arc<FetchBuffer>,
        wake: Arc<Notify>,
    ) {
        let (events, mut received) = mpsc::unbounded_channel();
        let mut fetcher = Self {
            config: positions.config.clone(),
            cluster: positions.cluster.clone(),
            routes: positions.routes.clone(),
            positions,
            buffer,
            events,
            tasks: JoinSet::new(),
            last_id: 0,
            polls: HashMap::new(),
            alone: HashMap::new(),
            locating: HashSet::new(),
            ahead_since: HashMap::new(),
            refreshing: false,
            streams: HashMap::new(),
        };
        let mut metadata = interval(fetcher.cluster.config.metadata_max_age);
        metadata.set_missed_tick_behavior(MissedTickBehavior::Delay);
        metadata.reset();
        let mut next: Option<Instant> = None;
        loop {
            let at = next.unwrap_or_else(Instant::now);
            tokio::select! {
                Some(event) = received.recv() => fetcher.take(event),
                () = wake.notified() => {}
                () = sleep_until(at), if next.is_some() => {}
                Some(_) = fetcher.tasks.join_next() => {}
                _ = metadata.tick() => {
                    let topics = fetcher.cluster.leaders.topic_names();
                    fetcher.refresh(topics);
                }
            }
            while let Ok(event) = received.try_recv() {
                fetcher.take(event);
            }
            next = fetcher.dispatch(Instant::now());
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Polled { place, id, wanted, answer } => {
                if self.polls.get(&place).is_some_and(|poll| poll.id == id) {
                    self.polls.remove(&place); // else it was given up
                    self.polled(&place.0, &wanted, answer);
                }
            }
            Event::Streamed { id, at, refused, address } => {
                // Unless a seek has already put polls, or another one, in its place.
                if self.streams.get(&at.tp).is_some_and(|stream| stream.id == id) {
                    self.streams.remove(&at.tp);
                    if let Some(refused) = refused {
                        self.refused(&at, &refused, &address);
                    }
                }
            }
            Event::Located { missing } => {
                for wanted in missing {
                    self.locating.remove(&wanted.tp);
                }
            }
            Event::Refreshed { other } => {
                self.refreshing = false;
                if let Some((topics, error)) = other {
                    let of = |w: &&Wanted| topics.iter().any(|topic| **topic == *w.tp.topic);
                    for wanted in self.buffer.wanted().iter().filter(of) {
                        self.buffer.fail(wanted, error.clone());
                    }
                }
                self.check_topics();
            }
            Event::TopicAsked => self.check_topics(),
            Event::Confirmed { wanted, found } => self.confirmed(&wanted, found),
        }
    }

    fn spawn(&mut self, task: impl Future<Output = Option<Event>> + Send + 'static) -> AbortHandle {
        let events = self.events.clone();
        self.tasks.spawn(async move {
            if let Some(event) = task.await {
                let _ = events.send(event); // the fetcher has ended, then
            }
        })
    }

    // --- groups and coordinators ----------------------------------------------------------

    /// Starts polls where there is something to ask, and returns when to look again.
    fn dispatch(&mut self, now: Instant) -> Option<Instant> {
        let mut next = self.locate_missing(now);
        if !self.refreshing {
            self.refresh(self.routes.take_outdated());
        }
        let sooner = |next: Option<Instant>, at: Instant| Some(next.map_or(at, |n| n.min(at)));
        let mut by_place: HashMap<Place, Vec<Wanted>> = HashMap::new();
        let mut lost = HashSet::new();
        for wanted in self.buffer.wanted() {
            if self.is_streamed(&wanted) {
                continue;
            }
            if let Some(at) = self.routes.ready_at(&wanted.tp).filter(|at| *at > now) {
                next = sooner(next, at);
                continue;
            }
            match self.routes.address(&wanted.tp) {
                Some(address) => {
                    let group = self.alone.get(&wanted.tp).copied().unwrap_or(wanted.group);
                    by_place.entry((address, group)).or_default().push(wanted);
                }
                None => {
                    lost.insert(wanted.tp.topic.to_string());
                }
            }
        }
        for (place, wanted) in by_place {
            if let Some(poll) = self.polls.get(&place) {
                if poll.covers(&wanted) {
                    continue;
                }
                // A partition has room again, or was sought elsewhere: do not let it wait for
                // the poll that is on its way.
                poll.task.abort();
            }
            self.start_poll(place, wanted);
        }
        if !lost.is_empty() {
            self.refresh(lost.into_iter().collect());
            next = sooner(next, now + LOST_PAUSE);
        }
        next
    }

    fn refresh(&mut self, topics: Vec<String>) {
        if self.refreshing || topics.is_empty() {
            return;
        }
        self.refreshing = true;
        let (cluster, positions) = (self.cluster.clone(), self.positions.clone());
        self.spawn(async move {
            // Without an answer it is asked again.
            let problem = cluster.refresh(&topics).await.err();
            positions.growth.take();
            let other = problem.filter(|error| error.kind() == ErrorKind::OtherCluster);
            Some(Event::Refreshed { other: other.map(|error| (topics, error)) })
        });
    }

    fn is_streamed(&mut self, wanted: &Wanted) -> bool {
        let Some(stream) = self.streams.get(&wanted.tp) else { return false };
        if stream.generation == wanted.generation {
            return true;
        }
        stream.task.abort();
        self.streams.remove(&wanted.tp);
        false
    }

    fn start_stream(&mut self, address: &str, from: Wanted) {
        self.last_id += 1;
        let (id, address) = (self.last_id, address.to_owned());
        let (cluster, buffer) = (self.cluster.clone(), self.buffer.clone());
        let (config, tp, generation) = (self.config.clone(), from.tp.clone(), from.generation);
        let task = self.spawn(async move {
            let (at, refused) = read_ahead(&config, &cluster, &buffer, &address, from).await;
            Some(Event::Streamed { id, at, refused, address })
        });
        self.streams.insert(tp, CatchUp { id, generation, task });
    }

    // --- asking --------------------------------------------------------------------------

    fn start_poll(&mut self, place: Place, wanted: Vec<Wanted>) {
        let part = |wanted: &Wanted| pb::PartitionFetch {
            topic: wanted.tp.topic.to_string(),
            partition: wanted.tp.partition,
            offset: wanted.offset,
            max_bytes: self.config.max_partition_fetch_bytes as i32,
        };
        let wait = self.config.fetch_max_wait.min(MOST_WAIT);
        let request = pb::FetchRequest {
            partitions: wanted.iter().map(part).collect(),
            min_bytes: self.config.fetch_min_bytes as i32,
            max_bytes: self.config.fetch_max_bytes as i32,
            max_wait_ms: wait.as_millis() as i32,
            any_replica: self.config.any_replica,
            near: self.config.rack.is_some(),
        };
        self.last_id += 1;
        let id = self.last_id;
        let asked = wanted.iter().map(|w| (w.tp.clone(), w.generation)).collect();
        let (cluster, routes, to) = (self.cluster.clone(), self.routes.clone(), place.clone());
        let task = self.spawn(async move {
            let answer = fetch(&cluster, &routes, &to.0, request, &wanted).await;
            Some(Event::Polled { place: to, id, wanted, answer })
        });
        self.polls.insert(place, Poll { id, asked, task });
    }

    fn polled(&mut self, address: &str, wanted: &[Wanted], answer: Result<pb::FetchResponse>) {
        match answer {
            Ok(answer) => {
                for (wanted, records) in wanted.iter().zip(&answer.partitions) {
                    self.took(address, wanted, records);
                }
            }
            Err(error) => {
                let one = wanted.len() == 1;
                for wanted in wanted {
                    if error.is_retriable() {
                        self.routes.failed(&wanted.tp, address);
                        if error.kind() == ErrorKind::OtherCluster {
                            self.buffer.fail(wanted, error.clone());
                        }
                    } else if one {
                        self.buffer.fail(wanted, error.clone());
                    } else {
                        // Which of them is the cause?
                        self.last_id += 1;
                        let group = usize::MAX - self.last_id as usize;
                        self.alone.insert(wanted.tp.clone(), group);
                    }
                }
            }
        }
    }

    fn took(&mut self, address: &str, wanted: &Wanted, records: &pb::PartitionRecords) {
        match self.buffer.add(wanted, records) {
            Added::Stale => {}
            Added::Refused => self.refused(wanted, records, address),
            Added::Anew => {
                self.begin_anew(wanted, records.topic_id);
                self.refresh(vec![wanted.tp.topic.to_string()]);
            }
            Added::Behind => self.routes.failed(&wanted.tp, address),
            Added::Taken => {
                self.routes.answered(&wanted.tp, address);
                self.ahead_since.remove(&wanted.tp);
                self.alone.remove(&wanted.tp);
                if self.streams.len() < MOST_STREAMS && is_worth_it(&self.config, records) {
                    let from = Wanted { offset: end_offset(records), ..wanted.clone() };
                    self.start_stream(address, from);
                }
            }
        }
    }

    fn refused(&mut self, wanted: &Wanted, records: &pb::PartitionRecords, address: &str) {
        let tp = &wanted.tp;
        match PartitionError::try_from(records.error) {
            Ok(PartitionError::NotLeader) => {
                self.routes.leads_elsewhere(tp, address, records.leader_id, &records.leader_address)
            }
            Ok(PartitionError::NotReady) => self.routes.failed(tp, address),
            Ok(PartitionError::UnknownTopicOrPartition) => {
                self.routes.failed(tp, address);
                self.confirm_unknown(wanted.clone());
            }
            Ok(PartitionError::OffsetOutOfRange) => self.out_of_range(wanted, records, address),
            _ if self.routes.is_elsewhere(tp, address, records.error) => {
                self.routes.failed(tp, address);
            }
            _ => {
                let text = partition_text(records.error, &records.message);
                self.buffer.fail(wanted, corrupt(tp, wanted.offset, text));
            }
        }
    }

    /// A topic may vanish from one node's view for a moment; really gone is an error.
    fn confirm_unknown(&mut self, wanted: Wanted) {
        let cluster = self.cluster.clone();
        self.spawn(async move {
            let found = cluster.require_topic(&wanted.tp.topic, Duration::from_secs(5)).await;
            Some(Event::Confirmed { wanted, found })
        });
    }

    fn confirmed(&mut self, wanted: &Wanted, found: Result<()>) {
        self.check_topics();
        let found = found.and_then(|()| match self.cluster.leaders.leader(&wanted.tp) {
            Some(_) => Ok(()),
            None => Err(no_partition(&wanted.tp)),
        });
        if let Err(error) = found
            && error.kind() == ErrorKind::UnknownTopicOrPartition
        {
            self.positions.growth.drop_gone(&wanted.tp.topic);
            self.buffer.fail(wanted, error);
        }
    }

    /// Looks whether a topic was deleted and created again: its offsets mean nothing there.
    fn check_topics(&mut self) {
        for (wanted, id) in self.buffer.recreated() {
            self.positions.growth.drop_gone(&wanted.tp.topic);
            // Else callers are told that there is none.
            if self.cluster.leaders.leader(&wanted.tp).is_some() {
                self.begin_anew(&wanted, id);
            }
        }
    }

    /// Goes on where the group stands in the new topic, or else at its start.
    fn begin_anew(&mut self, wanted: &Wanted, id: u64) {
        self.ahead_since.remove(&wanted.tp);
        self.positions.growth.anew(&wanted.tp);
        self.buffer.begin_anew(wanted, id);
    }

    fn out_of_range(&mut self, wanted: &Wanted, records: &pb::PartitionRecords, address: &str) {
        let tp = &wanted.tp;
        let ahead = wanted.offset > records.high_watermark;
        let followed = self.config.any_replica || self.config.rack.is_some();
        if ahead && (self.buffer.was_read(tp) || followed) {
            // These records were read once, so they exist: the node lags, wait for it.
            if !self.ahead_since.contains_key(tp) {
                // Or it is another topic of that name.
                let (cluster, topic) = (self.cluster.clone(), tp.topic.clone());
                let address = address.to_owned();
                self.spawn(async move {
                    let _ = cluster.refresh_at(&address, &topic).await; // then it goes on waiting
                    Some(Event::TopicAsked)
                });
            }
            let since = *self.ahead_since.entry(tp.clone()).or_insert_with(Instant::now);
            if since.elapsed() < AHEAD_GRACE {
                return self.routes.failed(tp, address);
            }
        } else if self.config.auto_offset_reset != OffsetReset::None {
            // The group's own offset would lead there again.
            return self.buffer.reset(wanted, self.config.auto_offset_reset);
        }
        let message = format!(
            "{tp}: offset {} is out of range, the log has {} to {}",
            wanted.offset, records.log_start_offset, records.high_watermark
        );
        let error = Error::new(ErrorKind::OffsetOutOfRange, message).with(|d| {
            d.topic = tp.topic.to_string();
            d.partition = tp.partition;
            d.offset = wanted.offset;
            d.log_start_offset = records.log_start_offset;
            d.high_watermark = records.high_watermark;
        });
        self.buffer.fail(wanted, error);
    }

    // --- positions -----------------------------------------------------------------------

    /// Finds out where to start partitions without a position, each as soon as it can be known, and
    /// returns when to look again.
    fn locate_missing(&mut self, now: Instant) -> Option<Instant> {
        let mut next = None;
        let mut missing = vec![];
        for wanted in self.buffer.without_position() {
            if self.locating.contains(&wanted.tp) {
                continue;
            }
            if let Some(at) = self.routes.ready_at(&wanted.tp).filter(|at| *at > now) {
                next = Some(next.map_or(at, |known: Instant| known.min(at)));
                continue;
            }
            self.locating.insert(wanted.tp.clone());
            missing.push(wanted);
        }
        if missing.is_empty() {
            return next;
        }
        let (positions, buffer) = (self.positions.clone(), self.buffer.clone());
        self.spawn(async move {
            let by_tp: HashMap<_, _> = missing.iter().map(|w| (w.tp.clone(), w)).collect();
            let tell = |tp: &TopicPartition, found: Result<i64>| match (by_tp.get(tp), found) {
                (Some(wanted), Ok(offset)) => buffer.found(wanted, offset),
                (Some(wanted), Err(error)) => {
                    positions.growth.drop_gone(&tp.topic);
                    buffer.fail(wanted, error);
                }
                (None, _) => {}
            };
            positions.start(&missing, &tell).await;
            drop(by_tp);
            Some(Event::Located { missing })
        });
        next
    }
}

impl Poll {
    fn covers(&self, wanted: &[Wanted]) -> bool {
        wanted.iter().all(|wanted| self.asked.get(&wanted.tp) == Some(&wanted.generation))
    }
}

/// Asks the node, unless it says nothing and another one leads by now. A node that hangs keeps
/// its connections, so the request would time out first.
async fn fetch(
    cluster: &Cluster,
    routes: &Routes,
    address: &str,
    request: pb::FetchRequest,
    wanted: &[Wanted],
) -> Result<pb::FetchResponse> {
    let wait = Duration::from_millis(request.max_wait_ms as u64);
    let call = cluster.call_at(address, cluster.config.request_timeout, ask!(log.fetch(request)));
    let answer = tokio::select! {
        answer = call => answer?,
        () = no_longer_leads(cluster, routes, address, wanted, wait) => {
            let message = format!("{address}: silent, and no longer leads");
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
    };
    let (got, count) = (answer.partitions.len(), wanted.len());
    if got != count {
        let message = format!("the node gave {got} answers to {count} questions");
        return Err(Error::new(ErrorKind::Internal, message));
    }
    Ok(answer)
}

async fn no_longer_leads(
    cluster: &Cluster,
    routes: &Routes,
    address: &str,
    wanted: &[Wanted],
    wait: Duration,
) {
    let topics: HashSet<String> = wanted.iter().map(|w| w.tp.topic.to_string()).collect();
    let topics: Vec<String> = topics.into_iter().collect();
    sleep(wait).await;
    loop {
        sleep(LATE_BY).await;
        cluster.avoid(address);
        let _ = cluster.refresh(&topics).await; // it is asked again
        if wanted.iter().any(|wanted| routes.asks_another(&wanted.tp, address)) {
            return;
        }
    }
}

/// The offset behind the last batch; 0 if there is none.
pub(crate) fn end_offset(records: &pb::PartitionRecords) -> i64 {
    records.batches.last().map_or(0, |last| {
        let count = last.header.as_ref().map_or(0, |header| header.record_count);
        last.base_offset + i64::from(count)
    })
}

pub(crate) fn partition_text(error: i32, message: &str) -> String {
    if !message.is_empty() {
        return message.into();
    }
    match PartitionError::try_from(error) {
        Ok(error) => error.as_str_name().into(),
        Err(_) => format!("error {error}"),
    }
}
