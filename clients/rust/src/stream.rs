//! One ordered stream of batches to one node. It connects before it reports itself open, so a
//! batch that is handed over has somewhere to go; a batch for a node that cannot be reached is
//! never sealed.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;

use crate::connection::Node;
use crate::pb;
use crate::sender::Event;
use crate::types::TopicPartition;

/// Several small batches share a message up to this size, and this number.
const MESSAGE_BYTES: usize = 1 << 20;
const MESSAGE_BATCHES: usize = 1000;
/// No more is handed to the connection than this before it has taken the batches in hand: a batch
/// that waits in the accumulator can still grow, one that waits here cannot.
const BACKLOG_BYTES: usize = 4 << 20;

/// The sender's end of a stream.
pub(crate) struct ProduceStream {
    pub(crate) id: u64,
    pub(crate) opened: bool,
    /// Answers are awaited for these, by attempt id: the batch by partition and serial.
    pub(crate) outstanding: HashMap<u64, (TopicPartition, u64)>,
    queue: mpsc::UnboundedSender<pb::Batch>,
    backlog: Arc<AtomicUsize>,
    task: AbortHandle,
}

/// Parts of a stream.
pub(crate) struct StreamStart {
    pub(crate) id: u64,
    pub(crate) address: String,
    pub(crate) commit_timeout: Duration,
    pub(crate) events: mpsc::UnboundedSender<Event>,
    pub(crate) wake: Arc<Notify>,
}

impl ProduceStream {
    pub(crate) fn start(node: Node, start: StreamStart) -> Self {
        let (queue, batches) = mpsc::unbounded_channel();
        let backlog = Arc::new(AtomicUsize::new(0));
        let id = start.id;
        let outbox = Outbox {
            queue: batches,
            held: None,
            backlog: backlog.clone(),
            wake: start.wake,
            timeout_ms: start.commit_timeout.as_millis() as i32,
        };
        let (address, events) = (start.address, start.events);
        let task = tokio::spawn(async move {
            let (why, told) = run(id, &address, node, outbox, &events).await;
            // Nobody listens once the producer is closed.
            let _ = events.send(Event::Closed { address, id, why, told });
        });
        Self {
            id,
            opened: false,
            outstanding: HashMap::new(),
            queue,
            backlog,
            task: task.abort_handle(),
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.opened && self.backlog.load(Ordering::Relaxed) < BACKLOG_BYTES
    }

    pub(crate) fn send(&mut self, message: pb::Batch, tp: TopicPartition, serial: u64) {
        self.outstanding.insert(message.id, (tp, serial));
        self.backlog.fetch_add(message.payload.len(), Ordering::Relaxed);
        // If it has ended, its event says so.
        let _ = self.queue.send(message);
    }
}

impl Drop for ProduceStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Connects, writes and reads until the stream breaks; returns why it did, and whether the node told
/// that.
async fn run(
    id: u64,
    address: &str,
    node: Node,
    outbox: Outbox,
    events: &mpsc::UnboundedSender<Event>,
) -> (String, bool) {
    let tell = |event| events.send(event).is_ok();
    if let Err(status) = node.connect().await {
        return (status.message().into(), false);
    }
    if !tell(Event::Opened { address: address.into(), id }) {
        return Default::default();
    }
    // A node may send nothing, not even headers, before the first batch: that is written while
    // the answer is awaited.
    let mut answers = match node.log().produce_stream(outbox).await {
        Ok(response) => response.into_inner(),
        Err(status) => return refused(address, &status, events),
    };
    loop {
        match answers.message().await {
            Ok(Some(answer)) => {
                let results = answer.results;
                if !tell(Event::Results { address: address.into(), id, results }) {
                    return Default::default();
                }
            }
            Ok(None) => return ("the node ended the stream".into(), false),
            Err(status) => return refused(address, &status, events),
        }
    }
}

fn refused(
    address: &str,
    status: &tonic::Status,
    events: &mpsc::UnboundedSender<Event>,
) -> (String, bool) {
    let error = crate::status::from_status(address, status);
    let told = error.is_told();
    let _ = events.send(Event::StreamRefused { error });
    (status.message().into(), told)
}

/// The messages of a stream, as the connection takes them.
struct Outbox {
    queue: mpsc::UnboundedReceiver<pb::Batch>,
    /// The first batch of the next message.
    held: Option<pb::Batch>,
    backlog: Arc<AtomicUsize>,
    /// Has the sender look for work, where there is room again.
    wake: Arc<Notify>,
    timeout_ms: i32,
}

impl Stream for Outbox {
    type Item = pb::ProduceRequest;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let first = match self.held.take() {
            Some(batch) => batch,
            None => match ready!(self.queue.poll_recv(cx)) {
                Some(batch) => batch,
                None => return Poll::Ready(None),
            },
        };
        let mut size = first.payload.len();
        let mut batches = vec![first];
        while batches.len() < MESSAGE_BATCHES
            && let Ok(batch) = self.queue.try_recv()
        {
            if size + batch.payload.len() > MESSAGE_BYTES {
                self.held = Some(batch);
                break;
            }
            size += batch.payload.len();
            batches.push(batch);
        }
        if self.backlog.fetch_sub(size, Ordering::Relaxed) >= BACKLOG_BYTES {
            self.wake.notify_one();
        }
        Poll::Ready(Some(pb::ProduceRequest { batches, timeout_ms: self.timeout_ms }))
    }
}
