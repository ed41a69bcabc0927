//! The cluster as one thing to call: connections to its nodes, and calls that find a node that
//! answers.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tonic::{Response, Status};

use crate::attempts::Attempts;
use crate::config::ClientConfig;
use crate::connection::{Dialer, Node};
use crate::errors::{Error, ErrorKind, Result};
use crate::leaders::Leaders;
use crate::pb;
use crate::reachability::Reachability;
use crate::status::from_status;
use crate::types::TopicPartition;

/// How long a topic that was created elsewhere may take to be known everywhere.
const UNKNOWN_TOPIC_GRACE: Duration = Duration::from_secs(2);
/// After so many failures in a row to reach the leader that one node names, another node is asked
/// for it: a node that is cut off from the others tells of a leader that is long gone.
pub(crate) const MAX_LEADER_FAILURES: u32 = 4;
const SHORTEST: Duration = Duration::from_millis(50);

/// One call of a node: `ask!(log.fetch(request))`.
macro_rules! ask {
    ($service:ident . $method:ident ( $request:expr )) => {{
        let request = $request;
        move |node: $crate::connection::Node| {
            let request = request.clone();
            async move { node.$service().$method(request).await }
        }
    }};
}
pub(crate) use ask;

/// Pauses that double, up to a limit, 20 % more or less by chance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) most: Duration,
}

impl Backoff {
    pub(crate) fn delay(&self, failures: u32) -> Duration {
        if failures == 0 {
            return Duration::ZERO;
        }
        let pause = self.first.saturating_mul(1 << (failures - 1).min(30)).min(self.most);
        pause.mul_f64(0.8 + 0.4 * fastrand::f64())
    }

    /// The same, and no less than a node asks for.
    pub(crate) fn after(&self, error: &Error, failures: u32) -> Duration {
        let pause = self.delay(failures);
        match error.kind() {
            ErrorKind::Throttled => pause.max(error.details().retry_after),
            _ => pause,
        }
    }
}

/// How long to try.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trying {
    pub(crate) total: Duration,
    pub(crate) attempt: Duration,
}

pub(crate) struct Cluster {
    pub(crate) config: ClientConfig,
    pub(crate) leaders: Leaders,
    pub(crate) backoff: Backoff,
    pub(crate) reached: Reachability,
    dialer: Arc<Dialer>,
    state: Mutex<State>,
}

struct State {
    nodes: HashMap<String, Node>,
    preferred: String,
    /// Nodes that others are asked before, the one avoided last at the end.
    avoided: Vec<String>,
    /// Topics of which the last node that was asked knew nothing: perhaps deleted.
    unknown: HashSet<String>,
    closed: bool,
}

impl Cluster {
    pub(crate) fn new(config: ClientConfig) -> Result<Self> {
        if tokio::runtime::Handle::try_current().is_err() {
            let message = "a client is made within a Tokio runtime, which carries its tasks";
            return Err(Error::new(ErrorKind::InvalidConfig, message));
        }
        let servers = &config.bootstrap_servers;
        let state = State {
            nodes: HashMap::new(),
            preferred: servers[fastrand::usize(..servers.len())].clone(),
            avoided: vec![],
            unknown: HashSet::new(),
            closed: false,
        };
        Ok(Self {
            leaders: Leaders::default(),
            backoff: Backoff { first: config.retry_backoff, most: config.retry_backoff_max },
            reached: Reachability::new(config.request_timeout),
            dialer: Arc::new(Dialer::new(&config)?),
            state: Mutex::new(state),
            config,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    pub(crate) fn node(&self, address: &str) -> Result<Node> {
        let mut state = self.state();
        if state.closed {
            return Err(Error::closed("client"));
        }
        if let Some(node) = state.nodes.get(address) {
            return Ok(node.clone());
        }
        let node = Node::new(address, self.dialer.clone())?;
        state.nodes.insert(address.into(), node.clone());
        Ok(node)
    }

    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.nodes.clear();
    }

    /// All known nodes: the one that answered last, the others in random order, and avoided nodes
    /// at the end.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.addresses_of(&self.state())
    }

    fn addresses_of(&self, state: &State) -> Vec<String> {
        let mut known = self.leaders.node_addresses();
        known.extend(self.config.bootstrap_servers.iter().cloned());
        known.sort();
        known.dedup();
        fastrand::shuffle(&mut known);
        let mut result = vec![state.preferred.clone()];
        let other = |address: &&String| **address != state.preferred;
        result.extend(
            known.iter().filter(other).filter(|address| !state.avoided.contains(address)).cloned(),
        );
        result.extend(
            state.avoided.iter().filter(other).filter(|address| known.contains(address)).cloned(),
        );
        result
    }

    /// Has the other nodes asked first, until they are avoided, too.
    pub(crate) fn avoid(&self, address: &str) {
        if address.is_empty() {
            return;
        }
        let mut state = self.state();
        state.avoided.retain(|known| known != address);
        state.avoided.push(address.into());
        if state.preferred == address
            && let Some(other) = self.addresses_of(&state).into_iter().nth(1)
        {
            state.preferred = other;
        }
    }

    /// The node that was asked first knows too little; begin with another next time.
    pub(crate) fn prefer_another(&self) {
        let preferred = self.state().preferred.clone();
        self.avoid(&preferred);
    }

    /// A node did not serve as the leader that it was said to be, so often in a row.
    pub(crate) fn leader_failed(&self, address: &str, failures: u32) {
        self.avoid(address);
        if failures.is_multiple_of(MAX_LEADER_FAILURES) {
            self.prefer_another();
        }
    }

    /// As long as the settings say.
    pub(crate) fn trying(&self) -> Trying {
        Trying { total: self.config.request_timeout, attempt: self.config.request_timeout }
    }

    /// Calls one node, once.
    pub(crate) async fn call_at<T, F, A>(
        &self,
        address: &str,
        limit: Duration,
        method: F,
    ) -> Result<T>
    where
        F: FnOnce(Node) -> A,
        A: Future<Output = std::result::Result<Response<T>, Status>>,
    {
        let limit = limit.max(SHORTEST);
        let node = self.node(address)?.within(limit);
        let answer = match timeout(limit, method(node)).await {
            Ok(Ok(response)) => {
                let learned = self.dialer.founding.learn(address, response.metadata());
                learned.map(|()| response.into_inner())
            }
            Ok(Err(status)) => Err(from_status(address, &status)),
            Err(_) => Err(Error::new(
                ErrorKind::RequestTimeout,
                format!("{address}: no answer within {limit:?}"),
            )),
        };
        self.reached.note(address, &answer);
        answer
    }

    /// Calls a method that any node answers, until it succeeds, fails for good, or time is up: the
    /// error is then the last one from a node, not that another attempt had no answer. It fails at
    /// once if no node of the client's own cluster answers, and one of another does.
    pub(crate) async fn call<T, F, A>(&self, trying: Trying, method: F) -> Result<T>
    where
        F: Fn(Node) -> A,
        A: Future<Output = std::result::Result<Response<T>, Status>>,
    {
        self.call_noting(trying, None, &mut |_| {}, method).await
    }

    /// The same, `first` at this node; `on_retry` takes the errors of attempts that may be repeated.
    pub(crate) async fn call_noting<T, F, A>(
        &self,
        trying: Trying,
        first: Option<&str>,
        on_retry: &mut (dyn FnMut(&Error) + Send),
        method: F,
    ) -> Result<T>
    where
        F: Fn(Node) -> A,
        A: Future<Output = std::result::Result<Response<T>, Status>>,
    {
        let deadline = Instant::now() + trying.total;
        let mut tried = Attempts::default();
        for failures in 1.. {
            let (mut last, mut other) = (None, None);
            let mut addresses = self.addresses();
            if let Some(at) = addresses.iter().position(|address| Some(address.as_str()) == first)
                && failures == 1
            {
                addresses[..=at].rotate_right(1);
            }
            for address in addresses {
                let left = deadline.saturating_duration_since(Instant::now());
                let error = match self.call_at(&address, trying.attempt.min(left), &method).await {
                    Ok(answer) => {
                        if Some(address.as_str()) != first {
                            self.state().preferred = address;
                        }
                        return Ok(answer);
                    }
                    Err(error) => error,
                };
                let unknown = error.kind() == ErrorKind::UnknownTopicOrPartition;
                if !error.is_retriable() || unknown {
                    return Err(tried.final_answer(error));
                }
                tried.failed(&error);
                on_retry(&error);
                if Instant::now() >= deadline {
                    return Err(tried.error());
                }
                if error.kind() == ErrorKind::OtherCluster {
                    other = Some(error.clone());
                }
                last = Some(error);
            }
            if let Some(other) = other {
                return Err(tried.with_doubt(other));
            }
            let last = last.expect("there is at least one address");
            let pause = self.backoff.after(&last, failures);
            if Instant::now() + pause >= deadline {
                return Err(tried.error());
            }
            sleep(pause).await;
        }
        unreachable!("it ends with an answer or its deadline")
    }

    /// Calls a partition's leader, following it where it goes.
    pub(crate) async fn call_leader<T, F, A>(&self, tp: &TopicPartition, method: F) -> Result<T>
    where
        F: Fn(Node) -> A,
        A: Future<Output = std::result::Result<Response<T>, Status>>,
    {
        let limit = self.config.request_timeout;
        let deadline = Instant::now() + limit;
        self.require_topic(&tp.topic, limit).await?;
        if self.leaders.leader(tp).is_none() {
            return Err(no_partition(tp));
        }
        let mut tried = Attempts::default();
        for failures in 1.. {
            let address = self.leaders.address(tp).unwrap_or_default();
            let left = deadline.saturating_duration_since(Instant::now());
            let error = if address.is_empty() {
                Error::new(ErrorKind::NotReady, format!("{tp} has no leader"))
            } else {
                match self.call_at(&address, left, &method).await {
                    Ok(answer) => return Ok(answer),
                    Err(error) => error,
                }
            };
            if !error.is_retriable() {
                return Err(tried.final_answer(error));
            }
            tried.failed(&error);
            let named = error.details();
            let hinted = error.kind() == ErrorKind::NotLeader && !named.leader_address.is_empty();
            if hinted {
                self.leaders.hint(tp, named.leader_id, &named.leader_address);
            } else {
                self.leaders.suspect(tp);
            }
            self.leader_failed(&address, failures);
            let fresh = hinted && failures == 1;
            let pause = if fresh { Duration::ZERO } else { self.backoff.after(&error, failures) };
            if Instant::now() + pause >= deadline {
                return Err(tried.error());
            }
            sleep(pause).await;
            if !fresh {
                let left = deadline.saturating_duration_since(Instant::now());
                match self.require_topic(&tp.topic, left.max(SHORTEST)).await {
                    Err(error) if crate::positions::is_final(&error) => {
                        return Err(tried.final_answer(error));
                    }
                    Err(error) => {
                        tried.failed(&error);
                        return Err(tried.error());
                    }
                    Ok(()) => {}
                }
            }
        }
        unreachable!("it ends with an answer or its deadline")
    }

    // --- metadata ------------------------------------------------------------------------

    /// Asks for topics' leaders. A topic that does not exist is left out of the answer.
    pub(crate) async fn refresh(&self, topics: &[String]) -> Result<()> {
        self.refresh_within(topics, self.config.request_timeout).await
    }

    async fn refresh_within(&self, topics: &[String], total: Duration) -> Result<()> {
        match self.describe(topics, total).await {
            Ok(()) => {
                let mut state = self.state();
                for topic in topics {
                    state.unknown.remove(topic);
                }
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::UnknownTopicOrPartition => {}
            Err(error) => return Err(error),
        }
        // The node may be behind, or cut off from the others: they are asked next.
        self.prefer_another();
        if let [topic] = topics {
            self.state().unknown.insert(topic.clone());
            return Ok(());
        }
        for topic in topics {
            Box::pin(self.refresh_within(std::slice::from_ref(topic), total)).await?;
        }
        Ok(())
    }

    async fn describe(&self, topics: &[String], total: Duration) -> Result<()> {
        let request = pb::DescribeTopicsRequest { names: topics.to_vec() };
        let trying = Trying { total, attempt: total.min(Duration::from_secs(1)) };
        let answer = self.call(trying, ask!(cluster.describe_topics(request))).await?;
        self.leaders.update(&answer);
        Ok(())
    }

    /// Takes over this node's view of a topic.
    pub(crate) async fn refresh_at(&self, address: &str, topic: &str) -> Result<()> {
        let request = pb::DescribeTopicsRequest { names: vec![topic.into()] };
        let limit = self.config.request_timeout.min(Duration::from_secs(1));
        let answer = self.call_at(address, limit, ask!(cluster.describe_topics(request))).await?;
        self.leaders.update(&answer);
        Ok(())
    }

    fn knows(&self, topic: &str) -> bool {
        !self.state().unknown.contains(topic) && self.leaders.topic(topic).is_some()
    }

    /// Waits until the topic's metadata is known. A topic that does not exist is asked for again
    /// for a short while: it may have been created a moment ago at another node.
    pub(crate) async fn require_topic(&self, topic: &str, limit: Duration) -> Result<()> {
        let start = Instant::now();
        let names = [topic.to_owned()];
        let mut tried = Attempts::default();
        for failures in 1.. {
            let left = limit.saturating_sub(start.elapsed()).max(SHORTEST);
            let asked = self.refresh_within(&names, left.min(self.config.request_timeout)).await;
            match asked {
                Err(error) if !error.is_retriable() => return Err(error),
                Err(error) => {
                    tried.failed(&error);
                    if start.elapsed() >= limit {
                        let text = format!("no metadata of topic {topic:?} within {limit:?}");
                        return Err(tried.late(&text));
                    }
                }
                Ok(()) if self.knows(topic) => return Ok(()),
                Ok(()) if start.elapsed() >= limit.min(UNKNOWN_TOPIC_GRACE) => {
                    let message =
                        format!("topic {topic:?} does not exist: oncelog topic create {topic}");
                    let error = Error::new(ErrorKind::UnknownTopicOrPartition, message);
                    return Err(error.with(|d| {
                        d.topic = topic.into();
                        d.partition = -1;
                    }));
                }
                Ok(()) => {}
            }
            let left = limit.saturating_sub(start.elapsed());
            sleep(self.backoff.delay(failures.min(4)).min(left)).await;
        }
        unreachable!("it ends with an answer or its limit")
    }
}

pub(crate) fn no_partition(tp: &TopicPartition) -> Error {
    let message = format!("topic {:?} has no partition {}", tp.topic, tp.partition);
    Error::new(ErrorKind::UnknownTopicOrPartition, message).with(|d| {
        d.topic = tp.topic.to_string();
        d.partition = tp.partition;
    })
}
