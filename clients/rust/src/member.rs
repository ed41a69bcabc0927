//! A consumer's place in its group, over all connections and memberships, until it leaves: a stream
//! that brings assignments, and calls that answer.
//!
//! ```text
//! coordinator --JoinGroup stream--> GroupMember --> Membership --Change--> FetchBuffer
//! coordinator <--GroupHeartbeat---- GroupMember <-- Rebalance, within polls
//! ```
//!
//! Changes are put before the user's polls as an interruption; nothing of the user's changes
//! without them. All but the hello goes by calls, not by the stream: an answer shows that the
//! coordinator still has this member, and while none comes for a session's length nothing is given
//! out.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::buffer::FetchBuffer;
use crate::cluster::{Cluster, ask};
use crate::config::ConsumerConfig;
use crate::errors::{Error, ErrorKind, Result};
use crate::groups::{ATTEMPT, CommitTerms, Groups, on_wire};
use crate::membership::{Membership, Step};
use crate::pb::{self, join_group_request as request, join_group_response as response};
use crate::status::from_status;
use crate::types::{OffsetCommit, TopicPartition};

/// Work of the user's polls.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) connection: i64,
    pub(crate) step: Step,
    /// Of the revoked partitions.
    pub(crate) deadline: Instant,
    /// The membership has: the user has to come back before another begins.
    pub(crate) ended: bool,
}

pub(crate) struct GroupMember {
    config: ConsumerConfig,
    cluster: Arc<Cluster>,
    pub(crate) groups: Arc<Groups>,
    buffer: Arc<FetchBuffer>,
    pub(crate) group: String,
    id: String,
    state: Mutex<State>,
    /// There is something to say.
    wake: Notify,
    /// Whether the group has answered, or will not.
    joined: watch::Sender<bool>,
    /// Whether the user knows that the membership before has ended.
    is_back: watch::Sender<bool>,
    task: Mutex<Option<AbortHandle>>,
}

struct State {
    membership: Membership,
    topics: Vec<String>,
    claim: i64,
    was_member: bool,
    /// An assignment came over the present connection.
    is_in: bool,
    /// Of the coordinator, while connected.
    address: Option<String>,
    /// For good.
    error: Option<Error>,
    /// It has not joined yet.
    why_not: Option<Error>,
    ping: Duration,
    session: Duration,
    /// `None`: hello again.
    outbox: VecDeque<Option<request::Message>>,
}

/// Events after a connection.
enum Next {
    /// It goes on.
    Same,
    /// Another one, at once.
    Another,
}

/// A hello; the stream stays open without another word.
struct Said(Option<pb::JoinGroupRequest>);

impl Stream for Said {
    type Item = pb::JoinGroupRequest;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.0.take() {
            Some(hello) => Poll::Ready(Some(hello)),
            None => Poll::Pending,
        }
    }
}

fn uuid() -> String {
    let bits = fastrand::u128(..) & !(0xf << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// For people.
fn client_host(client_id: &str) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{client_id}@{}", host.trim()).chars().take(255).collect()
}

fn not_leader(message: &str) -> Error {
    Error::new(ErrorKind::NotLeader, message)
}

impl GroupMember {
    pub(crate) fn start(
        config: &ConsumerConfig,
        cluster: Arc<Cluster>,
        groups: Arc<Groups>,
        buffer: Arc<FetchBuffer>,
        topics: Vec<String>,
    ) -> Arc<Self> {
        let state = State {
            membership: Membership::default(),
            topics,
            claim: 0,
            was_member: false,
            is_in: false,
            address: None,
            error: None,
            why_not: None,
            ping: Duration::from_secs(1),
            session: config.session_timeout,
            outbox: VecDeque::new(),
        };
        let member = Arc::new(Self {
            group: config.group_id.clone().unwrap_or_default(),
            config: config.clone(),
            cluster,
            groups,
            buffer,
            id: uuid(),
            state: Mutex::new(state),
            wake: Notify::new(),
            joined: watch::Sender::new(false),
            is_back: watch::Sender::new(true),
            task: Mutex::default(),
        });
        let running = member.clone();
        let task = tokio::spawn(async move { running.run().await });
        *member.task.lock().expect("no panic while it is held") = Some(task.abort_handle());
        member
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    // --- the user's questions ------------------------------------------------------------

    /// Returns when the group has answered, or the error in the way.
    pub(crate) async fn await_joined(&self) -> Result<()> {
        let limit = self.config.client.request_timeout;
        let mut joined = self.joined.subscribe();
        if timeout(limit, joined.wait_for(|joined| *joined)).await.is_ok() {
            return self.failure();
        }
        let why_not = self.state().why_not.clone();
        let why = why_not.map_or_else(|| "no answer".into(), |error| error.to_string());
        let message = format!("group {} not joined within {limit:?}: {why}", self.group);
        Err(Error::new(ErrorKind::RequestTimeout, message))
    }

    /// The error that has ended the membership for good.
    pub(crate) fn failure(&self) -> Result<()> {
        self.state().error.clone().map_or(Ok(()), Err)
    }

    /// Other topics from now on.
    pub(crate) fn subscribe(&self, topics: Vec<String>) {
        self.state().topics = topics;
        self.send(None);
    }

    /// Those of the revoked that still have to be given back on this connection.
    pub(crate) fn asked_back(&self, change: &Change) -> Vec<TopicPartition> {
        let state = self.state();
        let membership = &state.membership;
        // Else asked again on the new one, if at all.
        let same = change.connection == membership.connection;
        let asked = change.step.revoked.iter();
        asked.filter(|tp| same && membership.revoking.contains(*tp)).cloned().collect()
    }

    /// Gives back finished and committed partitions; returns the partitions that are kept all the
    /// same.
    pub(crate) fn release(&self, change: &Change, tps: &[TopicPartition]) -> Vec<TopicPartition> {
        self.answer(change.connection, tps);
        let state = self.state();
        tps.iter().filter(|tp| state.membership.owned.contains_key(*tp)).cloned().collect()
    }

    /// Those that are owned under the same number.
    pub(crate) fn still_owned(
        &self,
        numbers: &HashMap<TopicPartition, i64>,
    ) -> HashMap<TopicPartition, i64> {
        let state = self.state();
        let mut still = numbers.clone();
        still.retain(|tp, number| state.membership.owned.get(tp) == Some(number));
        still
    }

    /// Terms for a look at where to go on.
    pub(crate) fn terms_to_look(&self, tps: &[TopicPartition]) -> Result<CommitTerms> {
        let state = self.state();
        if let Some(tp) = tps.iter().find(|tp| !state.membership.owned.contains_key(*tp)) {
            let message = format!("{tp}: the group has taken it back");
            return Err(Error::new(ErrorKind::FencedMember, message));
        }
        let ownerships = state.membership.owned.clone().into_iter().collect();
        Ok(CommitTerms { member_id: self.id.clone(), number: 0, ownerships })
    }

    /// The user knows that the membership has ended; another one may begin.
    pub(crate) fn comes_back(&self) {
        self.is_back.send_replace(true);
    }

    /// The member's part of the next commit, for records that were read under ownerships of these
    /// numbers.
    pub(crate) fn terms_to_commit(
        &self,
        offsets: &HashMap<TopicPartition, OffsetCommit>,
        numbers: &BTreeMap<TopicPartition, i64>,
    ) -> Result<CommitTerms> {
        let mut state = self.state();
        let owned = &state.membership.owned;
        let is_held =
            |tp: &&TopicPartition| owned.contains_key(*tp) && owned.get(*tp) == numbers.get(*tp);
        if let Some(tp) = offsets.keys().find(|tp| !is_held(tp)) {
            let message =
                format!("{tp}: offset not committed: it is not part of this consumer's assignment");
            return Err(Error::new(ErrorKind::FencedMember, message));
        }
        let number = state.membership.next_commit();
        let ownerships = numbers.clone().into_iter().collect();
        Ok(CommitTerms { member_id: self.id.clone(), number, ownerships })
    }

    /// Ends the membership; that of a named instance ends with its session only.
    pub(crate) async fn leave(&self) {
        let address = self.state().address.clone();
        if let Some(address) = address.filter(|_| self.config.group_instance_id.is_none()) {
            // Without an answer the session will end.
            let _ = self.say(&address, request::Message::Leave(pb::MemberLeave {})).await;
        }
        self.stop();
    }

    /// Says nothing any more.
    pub(crate) fn stop(&self) {
        if let Some(task) = self.task.lock().expect("no panic while it is held").take() {
            task.abort();
        }
    }

    // --- connections ---------------------------------------------------------------------

    async fn run(&self) {
        let mut failures = 0;
        while self.failure().is_ok() {
            // One that is stuck would only be given partitions that nobody reads then. The sender
            // is this member's own, so the wait does not fail.
            let _ = self.is_back.subscribe().wait_for(|is_back| *is_back).await;
            let address = self.groups.place(&self.group);
            let ended = self.connection(&address).await;
            let was_in = {
                let mut state = self.state();
                state.address = None;
                std::mem::take(&mut state.is_in)
            };
            let Err(error) = ended else {
                failures = 0;
                continue;
            };
            self.state().why_not = Some(error.clone());
            if !error.is_retriable() {
                return self.fail(error);
            }
            failures = if was_in { 1 } else { failures + 1 };
            sleep(self.groups.failed(&self.group, &address, &error, failures)).await;
        }
    }

    /// Lasts until the coordinator, or this member, wants another one.
    async fn connection(&self, address: &str) -> Result<()> {
        let (number, hello) = self.hello();
        let node = self.cluster.node(address)?;
        let message = Some(request::Message::Hello(hello));
        let said = Said(Some(pb::JoinGroupRequest { message }));
        let sent = Instant::now();
        let opened = timeout(ATTEMPT, async {
            let mut answers = node.groups().join_group(said).await?.into_inner();
            let first = answers.message().await?;
            Ok((answers, first))
        });
        let (mut answers, first) = match opened.await {
            Ok(Ok(opened)) => opened,
            Ok(Err(status)) => return Err(from_status(address, &status)),
            Err(_) => {
                let message = format!("{address}: no answer to a hello");
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
        };
        let over = || not_leader("the coordinator has ended the stream");
        let first = first.ok_or_else(over)?;
        self.groups.answered(&self.group, address);
        self.connected(address, &first, sent);
        if let Next::Another = self.take_over(number, first.message)? {
            return Ok(());
        }
        let beats = self.beat(address, number);
        tokio::pin!(beats);
        loop {
            let answer = tokio::select! {
                answer = answers.message() => match answer {
                    Ok(Some(answer)) => answer.message,
                    Ok(None) => return Err(over()),
                    Err(status) => return Err(from_status(address, &status)),
                },
                ended = &mut beats => match ended? {
                    Some(fenced) => Some(response::Message::Fenced(fenced)),
                    None => return Ok(()),
                },
            };
            if let Next::Another = self.take_over(number, answer)? {
                return Ok(());
            }
        }
    }

    fn connected(&self, address: &str, answer: &pb::JoinGroupResponse, sent: Instant) {
        {
            let mut state = self.state();
            state.address = Some(address.into());
            state.ping = Duration::from_millis(answer.ping_interval_ms.max(100) as u64);
            state.session = 3 * state.ping;
        }
        self.confirmed(sent);
    }

    /// The coordinator had this member when it answered the messages of that time.
    fn confirmed(&self, sent: Instant) {
        let session = self.state().session;
        self.buffer.hold_from(sent + session);
    }

    /// A new connection's number, and its first message.
    fn hello(&self) -> (i64, pb::MemberHello) {
        let mut state = self.state();
        state.outbox.clear();
        let connection = state.membership.connect();
        let config = &self.config;
        let ms = |span: Duration| span.as_millis() as i32;
        let hello = pb::MemberHello {
            group: self.group.clone(),
            member_id: self.id.clone(),
            connection,
            topics: state.topics.clone(),
            instance_id: config.group_instance_id.clone().unwrap_or_default(),
            epoch: state.membership.epoch,
            claim: state.claim,
            owned: on_wire(&state.membership.held()),
            assignor: config.assignor.as_str().into(),
            session_timeout_ms: ms(config.session_timeout),
            revoke_timeout_ms: ms(config.revoke_timeout),
            processing_timeout_ms: ms(config.processing_timeout),
            client_host: client_host(&config.client.client_id),
        };
        (connection, hello)
    }

    /// Sends the next message, or a sign of life; returns the error that ends the connection: that
    /// it is fenced, or that another hello is to be said.
    async fn beat(&self, address: &str, connection: i64) -> Result<Option<pb::MemberFenced>> {
        loop {
            let ping = self.state().ping;
            let nothing_to_say = self.state().outbox.is_empty();
            if nothing_to_say {
                // In time, or when there is something.
                let _ = timeout(ping, self.wake.notified()).await;
            }
            let next = self.state().outbox.pop_front();
            let idle_ms = self.buffer.idle().as_millis() as i64;
            let ping = || Some(request::Message::Ping(pb::MemberPing { idle_ms }));
            let Some(message) = next.unwrap_or_else(ping) else { return Ok(None) };
            let sent = Instant::now();
            let answer = self.say(address, message).await?;
            if answer.connection != connection {
                return Err(not_leader("the coordinator does not know this connection"));
            }
            if let Some(response::Message::Fenced(fenced)) = answer.message {
                return Ok(Some(fenced));
            }
            self.confirmed(sent);
        }
    }

    async fn say(&self, address: &str, message: request::Message) -> Result<pb::JoinGroupResponse> {
        let (connection, ping) = {
            let state = self.state();
            (state.membership.connection, state.ping)
        };
        let request = pb::GroupHeartbeatRequest {
            group: self.group.clone(),
            member_id: self.id.clone(),
            connection,
            request: Some(pb::JoinGroupRequest { message: Some(message) }),
        };
        let limit = ATTEMPT.min(ping.max(Duration::from_millis(500)));
        self.cluster.call_at(address, limit, ask!(groups.group_heartbeat(request))).await
    }

    /// Tells which partitions are still held, without these.
    fn answer(&self, connection: i64, tps: &[TopicPartition]) {
        let owned = {
            let mut state = self.state();
            if !state.membership.released(connection, tps) {
                return;
            }
            let partitions = on_wire(&state.membership.held());
            pb::MemberOwned { epoch: state.membership.epoch, partitions }
        };
        self.send(Some(request::Message::Owned(owned)));
    }

    fn send(&self, message: Option<request::Message>) {
        self.state().outbox.push_back(message);
        self.wake.notify_one();
    }

    // --- messages that come ----------------------------------------------------------------

    fn take_over(&self, connection: i64, message: Option<response::Message>) -> Result<Next> {
        match message {
            Some(response::Message::Assignment(assignment)) => {
                self.assigned(connection, &assignment);
                Ok(Next::Same)
            }
            Some(response::Message::Fenced(fenced)) => {
                self.fenced(&fenced.reason)?;
                Ok(Next::Another)
            }
            Some(response::Message::InstanceHeld(held)) => {
                let was_member = {
                    let mut state = self.state();
                    state.claim = held.claim;
                    state.was_member
                };
                if was_member { Err(self.taken()) } else { Ok(Next::Another) }
            }
            None => Ok(Next::Same),
        }
    }

    fn assigned(&self, connection: i64, assignment: &pb::GroupAssignment) {
        let tp = |topic: &str, partition: i32| TopicPartition::new(topic, partition);
        let numbers: HashMap<_, _> = assignment
            .partitions
            .iter()
            .map(|p| (tp(&p.topic, p.partition), p.ownership))
            .collect();
        let revoke: Vec<_> = assignment.revoke.iter().map(|p| tp(&p.topic, p.partition)).collect();
        let (step, unheard_of) = {
            let mut state = self.state();
            let step = state.membership.assignment(connection, assignment.epoch, &numbers, &revoke);
            state.claim = 0;
            state.was_member = true;
            state.is_in = true;
            (step, revoke.iter().any(|tp| !state.membership.owned.contains_key(tp)))
        };
        if !step.is_empty() {
            let deadline = Instant::now() + self.config.revoke_timeout;
            self.buffer.interrupt(Change { connection, step, deadline, ended: false });
        }
        if unheard_of {
            // Given and asked back before this member heard of it: only the newest assignment is
            // sent. There is nothing to finish.
            self.answer(connection, &[]);
        }
        self.joined.send_replace(true);
    }

    /// Fails where the group is full, and for good where another process has the instance's name.
    fn fenced(&self, reason: &str) -> Result<()> {
        match reason {
            "INSTANCE_TAKEN" => Err(self.taken()),
            "GROUP_FULL" => {
                let message = format!("group {} has as many members as it may", self.group);
                Err(Error::new(ErrorKind::Throttled, message))
            }
            _ => {
                self.is_back.send_replace(false);
                self.lose_all();
                Ok(())
            }
        }
    }

    fn lose_all(&self) {
        let lost = self.state().membership.fenced();
        let step = Step { lost, ..Step::default() };
        let deadline = Instant::now();
        self.buffer.interrupt(Change { connection: 0, step, deadline, ended: true });
    }

    fn taken(&self) -> Error {
        let name = self.config.group_instance_id.as_deref().unwrap_or_default();
        let message = format!("another process goes by group_instance_id {name:?}");
        Error::new(ErrorKind::FencedMember, message)
    }

    fn fail(&self, error: Error) {
        self.state().error = Some(error);
        self.lose_all();
        self.joined.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consumer::Consumer;
    use crate::rebalance::{Followed, Rebalance, RebalanceListener};

    struct Panics;

    impl RebalanceListener for Panics {
        fn assigned<'a>(&'a self, _: &'a Consumer, _: &'a [TopicPartition]) -> Followed<'a> {
            Box::pin(async { panic!("a fault of its own") })
        }

        fn revoked<'a>(&'a self, _: &'a Consumer, _: &'a [TopicPartition]) -> Followed<'a> {
            panic!("a fault of its own")
        }

        fn lost<'a>(&'a self, _: &'a Consumer, _: &'a [TopicPartition]) -> Followed<'a> {
            panic!("a fault of its own")
        }
    }

    fn given(owned: &[(i32, i64)], revoke: &[i32]) -> pb::GroupAssignment {
        let topic = || String::from("t");
        let owns =
            |(partition, ownership)| pb::OwnedPartition { topic: topic(), partition, ownership };
        let back = |partition| pb::TopicPartition { topic: topic(), partition };
        pb::GroupAssignment {
            epoch: 2,
            partitions: owned.iter().copied().map(owns).collect(),
            revoke: revoke.iter().copied().map(back).collect(),
        }
    }

    /// No part of a change is left out, or the group and its member disagree.
    #[tokio::test]
    async fn a_change_is_done_as_a_whole_though_a_listener_panics() {
        let mut config = ConsumerConfig::new("127.0.0.1:1");
        config.group_id = Some("g".into());
        config.listener = Some(Panics.into());
        let cluster = Arc::new(Cluster::new(config.client.clone()).unwrap());
        let buffer = Arc::new(FetchBuffer::new(1000, cluster.clone(), Arc::new(Notify::new())));
        let groups = Arc::new(Groups::new(cluster.clone()));
        let member = GroupMember::start(&config, cluster, groups, buffer.clone(), vec![]);
        member.stop();
        let connection = member.state().membership.connect();
        let rebalance = Arc::new(Rebalance::new(&config, buffer.clone(), member.clone()));
        let follow = async || {
            let consumer = Consumer::new(ConsumerConfig::new("127.0.0.1:1")).unwrap();
            rebalance.clone().follow(consumer).await
        };
        member.assigned(connection, &given(&[(0, 1), (1, 1)], &[]));
        assert_eq!(follow().await.unwrap_err().kind(), ErrorKind::Internal);
        member.assigned(connection, &given(&[(2, 1)], &[1])); // 0 is lost
        let error = follow().await.unwrap_err();
        assert!(error.message().contains("a fault of its own"), "{error}");
        assert_eq!(buffer.assignment(), [TopicPartition::new("t", 2)]);
        assert_eq!(member.state().membership.held(), [TopicPartition::new("t", 2)]);
        follow().await.expect("there is nothing left to do");
    }
}
