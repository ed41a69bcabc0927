//! The founding of the cluster that a client began with: the first that an answer names. It goes
//! with each call, and a node of another founding rejects the call.

use std::sync::OnceLock;

use http::{HeaderMap, HeaderValue};
use tonic::metadata::MetadataMap;

use crate::errors::{Error, ErrorKind, Result};

const KEY: &str = "oncelog-founding";

#[derive(Default)]
pub(crate) struct Founding {
    /// Unset: no node has named one.
    known: OnceLock<HeaderValue>,
}

impl Founding {
    /// Names it in a call.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        if let Some(known) = self.known.get() {
            headers.insert(KEY, known.clone());
        }
    }

    /// Keeps the first founding. An answer of an older release names none.
    pub(crate) fn learn(&self, address: &str, answer: &MetadataMap) -> Result<()> {
        let Some(named) = answer.as_ref().get(KEY) else { return Ok(()) };
        let known = self.known.get_or_init(|| named.clone());
        if known == named {
            return Ok(());
        }
        let (named, known) = (named.to_str().unwrap_or("?"), known.to_str().unwrap_or("?"));
        let message = format!(
            "{address} is of the cluster founded as {named}, this client began with the one \
             founded as {known}. Remove the address from bootstrap_servers, or stop the node there"
        );
        Err(Error::new(ErrorKind::OtherCluster, message))
    }
}
