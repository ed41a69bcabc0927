//! A consumer's records as a stream.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::consumer::Consumer;
use crate::errors::Result;
use crate::types::Record;

/// A poll that waits for a record.
type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Vec<Record>>> + Send + 'a>>;

/// The records of a [`Consumer`], as a [`Stream`].
pub struct Records<'a> {
    consumer: &'a Consumer,
    waiting: Option<Waiting<'a>>,
    ended: bool,
}

impl<'a> Records<'a> {
    pub(crate) fn of(consumer: &'a Consumer) -> Self {
        Self { consumer, waiting: None, ended: false }
    }
}

impl Stream for Records<'_> {
    type Item = Result<Record>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let consumer = self.consumer;
        loop {
            let taken = match &mut self.waiting {
                Some(waiting) => {
                    let taken = std::task::ready!(waiting.as_mut().poll(cx));
                    self.waiting = None;
                    taken
                }
                None if consumer.is_due() => Ok(vec![]),
                None => consumer.take_one(),
            };
            match taken.map(|records| records.into_iter().next()) {
                Ok(Some(record)) => return Poll::Ready(Some(Ok(record))),
                Ok(None) => self.waiting = Some(Box::pin(consumer.poll_records(1))),
                Err(error) if consumer.will_be_taken_away(&error) => {
                    self.waiting = Some(Box::pin(consumer.poll_records(1)));
                }
                Err(error) => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}
