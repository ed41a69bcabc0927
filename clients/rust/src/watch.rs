//! The sender's work as time passes: it finds leaders anew, gives up expired batches, renews its
//! lease, and suspects nodes that do not answer.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::attempts::tells;
use crate::cluster::{Backoff, MAX_LEADER_FAILURES};
use crate::errors::Error;
use crate::sender::{Event, Sender};
use crate::types::TopicPartition;

/// A batch without an answer for so long makes the client ask for the leader: a node that was
/// frozen or cut off does not say so.
const STALL_AFTER: Duration = Duration::from_secs(1);
/// An election may not be over by the first question: it is asked again soon at first, and then
/// once a second, for a cluster may also just be slow.
const STALL_PAUSES: Backoff =
    Backoff { first: Duration::from_millis(250), most: Duration::from_secs(1) };
const LEADER_PAUSES: Backoff =
    Backoff { first: Duration::from_millis(20), most: Duration::from_millis(250) };

const SEARCH_PAUSES: Backoff =
    Backoff { first: Duration::from_millis(500), most: Duration::from_secs(5) };
/// A tick that is so late has missed earlier events.
pub(crate) const TICK_LATE: Duration = Duration::from_secs(1);

/// A topic with a stalled partition.
pub(crate) struct Stall {
    asked: u32,
    due: Instant,
}

/// A leader that refused.
#[derive(PartialEq, Eq)]
pub(crate) struct Suspect {
    address: String,
    term: i64,
}

impl Sender {
    /// The supposed leader does not. Ask others, until one of them names another leader.
    ///
    /// It may be cut off, and then tells every caller that it led last. So does a node that is
    /// cut off with it, or one that has not heard of the election yet.
    pub(crate) fn suspect(&mut self, tp: &TopicPartition) {
        let refused = self.sent_to.get(tp).cloned().unwrap_or_default();
        self.cluster.avoid(&refused);
        self.cluster.leaders.suspect(tp);
        if let Some(known) = self.cluster.leaders.leader(tp)
            && known.address == refused
        {
            self.suspected.insert(tp.clone(), Suspect { address: refused, term: known.term });
        }
        self.stale.insert(tp.topic.to_string());
    }

    /// Asks for the leaders of stale topics, again and again until all have one.
    pub(crate) fn refresh_stale(&mut self) {
        let topics: Vec<String> = self.stale.drain().collect();
        self.refreshing = true;
        let cluster = self.cluster.clone();
        self.spawn(async move {
            // Without an answer there are the same leaders as before, and the next round.
            let problem = cluster.refresh(&topics).await.err();
            Some(Event::Refreshed { topics, problem })
        });
    }

    pub(crate) fn refreshed(&mut self, topics: &[String], problem: Option<Error>) {
        self.refreshing = false;
        self.no_metadata = problem;
        let lacking: Vec<String> = self
            .busy
            .iter()
            .filter(|tp| topics.iter().any(|topic| **topic == *tp.topic) && !self.reachable(tp))
            .map(|tp| tp.topic.to_string())
            .collect();
        let lacks = !lacking.is_empty();
        self.stale.extend(lacking);
        self.rounds += 1;
        if !lacks && self.stale.is_empty() {
            self.rounds = 1;
        }
        if lacks && self.rounds.is_multiple_of(MAX_LEADER_FAILURES) {
            self.cluster.prefer_another();
        }
        self.refresh_at = Instant::now() + LEADER_PAUSES.delay(self.rounds);
        self.leave_unavailable();
    }

    pub(crate) fn leave_unavailable(&self) {
        let leaders = &self.cluster.leaders;
        let is_available = |topic: &str, partition| leaders.is_available(topic, partition);
        self.common.accumulator.leave_unavailable(is_available);
    }

    /// Looks for leaders that are back. Records without a key avoid partitions without a leader, so
    /// nothing else would notice.
    fn search(&mut self, now: Instant) {
        if now < self.search_at {
            return;
        }
        let (topics, addresses) = self.cluster.leaders.lacking();
        let lacks = !topics.is_empty() || !addresses.is_empty();
        self.searches = if lacks { self.searches + 1 } else { 0 };
        self.search_at = now + SEARCH_PAUSES.delay(self.searches);
        self.stale.extend(topics);
        for address in addresses {
            self.start_stream(&address);
        }
    }

    fn reachable(&self, tp: &TopicPartition) -> bool {
        let Some(known) = self.cluster.leaders.leader(tp) else { return false };
        let open = self.streams.get(&known.address).is_some_and(|stream| stream.opened);
        let here = Suspect { address: known.address, term: known.term };
        open && self.suspected.get(tp) != Some(&here)
    }

    // --- time ----------------------------------------------------------------------------

    pub(crate) fn tick(&mut self, now: Instant) {
        if self.stopped {
            return;
        }
        let late = now - self.ticked_at > TICK_LATE;
        self.ticked_at = now;
        if late {
            return; // the process was frozen: answers may be there that nobody has read yet
        }
        if let Some(why) = self.identities.hindered() {
            for tp in self.identifying.iter().cloned().collect::<Vec<_>>() {
                let text = format!("no producer id yet: {why}");
                self.window(&tp).obstacles.met(text, tells(&why));
            }
        }
        for (tp, batch) in self.common.accumulator.expire(now) {
            let reaction = self.window(&tp).expire_unsent(&batch);
            self.react(&tp, reaction);
        }
        for tp in self.busy.iter().cloned().collect::<Vec<_>>() {
            let reaction = self.window(&tp).expire(now);
            self.react(&tp, reaction);
        }
        self.check_stalls(now);
        self.search(now);
        self.renew(now);
        if now - self.asked_at > self.cluster.config.metadata_max_age {
            self.asked_at = now;
            self.stale.extend(self.cluster.leaders.topic_names());
        }
    }

    fn renew(&mut self, now: Instant) {
        let current = self.identities.current();
        if current.and_then(|current| current.renew_at).is_some_and(|at| now >= at) {
            let (identities, common) = (self.identities.clone(), self.common.clone());
            self.spawn(async move {
                let is_transactional = || common.accumulator.is_transactional();
                // Taken over by another instance, most likely: to go on would be to fight.
                identities.renew_if_due(now, is_transactional).await.err().map(Event::Failed)
            });
        }
    }

    fn check_stalls(&mut self, now: Instant) {
        let mut stalled: HashMap<String, Vec<String>> = HashMap::new();
        let mut silent = vec![];
        for tp in &self.busy {
            let Some(oldest) = self.windows.get(tp).and_then(|window| window.oldest_attempt())
            else {
                continue;
            };
            let address = self.sent_to.get(tp).cloned().unwrap_or_default();
            if now - oldest > self.cluster.config.request_timeout {
                silent.push(address);
            } else if now - oldest > STALL_AFTER {
                stalled.entry(tp.topic.to_string()).or_default().push(address);
            }
        }
        for address in silent {
            if self.streams.contains_key(&address) {
                self.close_stream(&address, "no answer within request_timeout", false);
            }
        }
        self.stalls.retain(|topic, _| stalled.contains_key(topic));
        for (topic, addresses) in stalled {
            let asked = match self.stalls.get(&topic) {
                Some(known) if now < known.due => continue,
                Some(known) => known.asked + 1,
                None => 1,
            };
            for address in &addresses {
                self.cluster.avoid(address);
                self.cluster.leaders.reached(address, false);
            }
            self.leave_unavailable();
            self.stale.insert(topic.clone());
            self.stalls.insert(topic, Stall { asked, due: now + STALL_PAUSES.delay(asked) });
        }
    }
}
