//! Which callbacks of a member were called.

use std::sync::{Arc, Mutex};

use oncelog::{Admin, AdminConfig, Consumer, Followed, RebalanceListener, Result, TopicPartition};

/// The words of the calls, in order.
pub type Calls = Arc<Mutex<Vec<&'static str>>>;

/// Notes its events. The record named by the word `failing` fails the first time.
pub struct Told {
    pub calls: Calls,
    pub failing: String,
}

impl Told {
    fn note(&self, word: &'static str) -> Followed<'_> {
        Box::pin(async move { self.noted(word) })
    }

    fn noted(&self, word: &'static str) -> Result<()> {
        let mut calls = self.calls.lock().expect("no panic while it is held");
        let is_first = !calls.contains(&word);
        calls.push(word);
        if is_first && self.failing == word {
            return Admin::new(AdminConfig::new("")).map(drop); // an error, of a client's call
        }
        Ok(())
    }
}

impl RebalanceListener for Told {
    fn assigned<'a>(&'a self, _: &'a Consumer, _: &'a [TopicPartition]) -> Followed<'a> {
        self.note("assigned")
    }

    fn revoked<'a>(&'a self, _: &'a Consumer, _: &'a [TopicPartition]) -> Followed<'a> {
        self.note("revoked")
    }

    fn lost<'a>(&'a self, _: &'a Consumer, _: &'a [TopicPartition]) -> Followed<'a> {
        self.note("lost")
    }
}
